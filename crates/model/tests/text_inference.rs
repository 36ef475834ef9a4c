//! Tests of the generation of texts. Reading a text at once must equal stepping through it, the
//! rows of a batch must not affect one another, and tokens before the context must be forgotten.

mod common;

use candle_core::{DType, Device, Tensor};
use common::{ALL_POSITIONS, largest_difference, largest_of, leave_in_a_file};
use taper_model::{
    AttentionConfig, AttentionKind, Builder, LanguageModel, Model, ModelConfig, ModelError, Pass,
    Positions, Sequences, TextInference, TextState,
};
use taper_ops::{CacheType, Kernel, Products};

const TEXT: [u32; 12] = [4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 4];

fn model(positions: Positions) -> LanguageModel {
    model_in(DType::F32, positions, AttentionKind::Full)
}

fn model_in(dtype: DType, positions: Positions, kind: AttentionKind) -> LanguageModel {
    let attention = AttentionConfig { kind, window: 4, ..Default::default() };
    let config = ModelConfig {
        d_model: 24,
        d_ff: 40,
        heads: 3,
        decoder_layers: 2,
        max_positions: 40,
        positions,
        decoder_attention: attention,
        ..Default::default()
    };
    LanguageModel::new(&config, 19, Builder::seeded(7, &Device::Cpu, dtype)).unwrap()
}

fn step(inference: &TextInference, state: &mut TextState, tokens: &[u32]) -> Vec<Vec<f32>> {
    let blocks: Vec<Tensor> =
        inference.step(state, tokens).unwrap().collect::<Result<_, ModelError>>().unwrap();
    Tensor::cat(&blocks, 0).unwrap().to_vec2().unwrap()
}

/// Returns the logits after `text`. The first `read` tokens are read at once, and the others step
/// by step.
fn after(inference: &TextInference, text: &[u32], read: usize) -> Vec<f32> {
    let mut state = inference.start(&[&text[..read]]).unwrap();
    let rows = text[read..].iter().map(|&token| step(inference, &mut state, &[token]));
    rows.last().unwrap().remove(0)
}

fn distance(a: &[f32], b: &[f32]) -> f32 {
    largest_of(a.iter().zip(b).map(|(a, b)| a - b))
}

/// Checks that `ours` and `theirs` are nearly equal. If the best kernel on this machine packs
/// weights, they must even be identical bit for bit.
fn same(ours: &[f32], theirs: &[f32], what: &str) {
    match Kernel::best(Products::F32) {
        Kernel::Gemm => assert!(distance(ours, theirs) < 2e-5, "{what}"),
        _ => assert_eq!(ours, theirs, "{what}"),
    }
}

#[test]
fn buckets_of_tokens_are_not_rounded() {
    let model = model_in(DType::F32, Positions::Sinusoidal, AttentionKind::Reformer);
    for cache_type in [CacheType::Bf16, CacheType::Int8] {
        let refused = model.inference(14).with_cache(cache_type).unwrap_err().to_string();
        assert!(refused.contains("without layers of the kind reformer"), "{refused}");
    }
    assert!(model.inference(14).with_cache(CacheType::Exact).is_ok());
}

#[test]
fn packed_weights_alone_generate_the_same_and_refuse_other_passes() {
    for dtype in [DType::F32, DType::BF16] {
        let make = || model_in(dtype, Positions::Rotary, AttentionKind::Full);
        let (whole, mut packed, mut in_file) = (make(), make(), make());
        packed.only_decode(false);
        packed.parameters().all().try_for_each(|one| packed.finish_loading(one)).unwrap();
        in_file.only_decode(false);
        leave_in_a_file(&in_file).unwrap();
        let expected = after(&whole.inference(40), &TEXT, 5);
        for _ in 0..2 {
            assert_eq!(after(&packed.inference(40), &TEXT, 5), expected);
            assert_eq!(after(&in_file.inference(40), &TEXT, 5), expected);
        }
        let read = packed.hidden(&Sequences::pack(&[&TEXT[..]]), &Pass::evaluate());
        if Kernel::best(Products::for_model(dtype, &Device::Cpu)) != Kernel::Gemm {
            let refused = read.unwrap_err().to_string();
            assert!(refused.contains("freed when it was packed"), "{refused}");
        }
    }
}

#[test]
fn reading_is_stepping_and_the_full_forward_pass() {
    for positions in ALL_POSITIONS {
        let model = model(positions);
        let inference = model.inference(100);
        let stepped = after(&inference, &TEXT, 0);
        for read in [1, 5, 11] {
            same(&after(&inference, &TEXT, read), &stepped, &format!("{positions:?} {read}"));
        }
        let pass = Pass::evaluate();
        let hidden = model.hidden(&Sequences::pack(&[TEXT]), &pass).unwrap();
        let full = model.logits(&hidden, &pass).unwrap().get(11).unwrap();
        let stepped = Tensor::new(stepped, &Device::Cpu).unwrap();
        assert!(largest_difference(&stepped, &full) < 2e-5, "{positions:?}");
    }
}

#[test]
fn texts_of_any_length_go_on_together_as_they_do_alone() {
    for positions in ALL_POSITIONS {
        let model = model(positions);
        // Each row fills its context of eight tokens at a different step.
        let inference = model.inference(8);
        let texts: [&[u32]; 4] = [&TEXT[..3], &[], &TEXT, &TEXT[5..6]];
        let tokens =
            |at: usize| [0, 1, 2, 3].map(|row: usize| 4 + ((row * 5 + at * 3) % 15) as u32);
        let mut together = inference.start(&texts).unwrap();
        let mut alone = texts.map(|text| inference.start(&[text]).unwrap());
        for at in 0..20 {
            let rows = step(&inference, &mut together, &tokens(at));
            for (row, state) in alone.iter_mut().enumerate() {
                let ours = step(&inference, state, &[tokens(at)[row]]);
                same(&rows[row], &ours[0], &format!("{positions:?}, step {at}, row {row}"));
            }
        }
        // Rows that are dropped, repeated and reordered keep their own past.
        together.select(&[2, 0, 0]).unwrap();
        let rows = step(&inference, &mut together, &[9, 8, 7]);
        for (row, (state, token)) in [(2, 9), (0, 8)].into_iter().enumerate() {
            let ours = step(&inference, &mut alone[state].clone(), &[token]);
            same(&rows[row], &ours[0], &format!("{positions:?}, selected row {row}"));
        }
        assert!(together.select(&[3]).is_err());
    }
}

/// Checks texts of at least 256 tokens, in which attention is computed in tiles when they are read.
#[test]
fn long_texts_are_read_together_as_alone_and_as_they_are_scored() {
    for (positions, kind) in [
        (Positions::Rotary, AttentionKind::Full),
        (Positions::Alibi, AttentionKind::Full),
        (Positions::T5, AttentionKind::Full),
        (Positions::Sinusoidal, AttentionKind::Sparse),
    ] {
        let model = model_in(DType::F32, positions, kind);
        let inference = model.inference(1000);
        let texts: Vec<Vec<u32>> = [256, 3, 0, 40, 257, 300]
            .iter()
            .map(|&length| (0..length).map(|i| 4 + (i * i / 3 + length) % 15).collect())
            .collect();
        let mut together = inference.start(&texts).unwrap();
        for at in 0..3 {
            let rows = step(&inference, &mut together, &[4 + at; 6]);
            for (row, text) in texts.iter().enumerate() {
                let what = format!("{positions:?}, row {row}, step {at}");
                let text: Vec<u32> = text.iter().copied().chain(4..=4 + at).collect();
                let ours = after(&inference, &text, text.len() - 1 - at as usize);
                same(&rows[row], &ours, &what);
                let pass = Pass::evaluate();
                let hidden = model.hidden(&Sequences::pack(&[&text]), &pass).unwrap();
                let full = model.logits(&hidden, &pass).unwrap().get(text.len() - 1).unwrap();
                let ours = Tensor::new(ours, &Device::Cpu).unwrap();
                assert!(largest_difference(&ours, &full) < 2e-5, "{what}");
            }
        }
    }
}

/// Checks that keys and values in fewer bits change logits little, also where rows are reordered and
/// the context is full.
#[test]
fn a_compact_cache_changes_logits_little() {
    for kind in [AttentionKind::Full, AttentionKind::Sparse] {
        let model = model_in(DType::F32, Positions::Rotary, kind);
        for (cache_type, bound) in [(CacheType::Bf16, 0.02), (CacheType::Int8, 0.04)] {
            let exact = model.inference(14);
            let compact = model.inference(14).with_cache(cache_type).unwrap();
            let texts: [&[u32]; 3] = [&TEXT[..7], &[], &TEXT[2..5]];
            let mut states = (exact.start(&texts).unwrap(), compact.start(&texts).unwrap());
            for at in 0..12 {
                let tokens = [4 + at, 15 - at, 5 + at % 3];
                let rows = step(&exact, &mut states.0, &tokens);
                for (ours, theirs) in step(&compact, &mut states.1, &tokens).iter().zip(&rows) {
                    let error = distance(ours, theirs);
                    assert!(error < bound, "{cache_type:?}, {kind:?}, step {at}: {error}");
                    assert!(at == 0 || error > 0.0, "{cache_type:?}, step {at}: exact");
                }
                if at == 5 {
                    states.0.select(&[2, 0, 0]).unwrap();
                    states.1.select(&[2, 0, 0]).unwrap();
                }
            }
        }
    }
}

#[test]
fn what_is_beyond_the_context_is_forgotten() {
    for positions in ALL_POSITIONS {
        let model = model(positions);
        let inference = model.inference(6);
        // After six tokens, the context is full. To make room, the last three are read anew, and
        // the next token follows them.
        let long = after(&inference, &TEXT[..7], 0);
        same(&long, &after(&inference, &TEXT[3..7], 0), &format!("{positions:?}"));
        // A prompt that fills the context is shortened, because there must be room for one more
        // token.
        let prompt = after(&inference, &TEXT, 11);
        same(&prompt, &after(&inference, &TEXT[6..], 5), &format!("{positions:?}"));
        assert!(distance(&long, &prompt) > 1e-3);
    }
    // The shortest context has the newest token alone; a context of 0 is the same.
    let model = model(Positions::Rotary);
    for context in [0, 1] {
        let inference = model.inference(context);
        assert_eq!(inference.context(), 1);
        let alone = after(&inference, &TEXT[11..], 0);
        for read in [0, 5, 11] {
            same(&after(&inference, &TEXT, read), &alone, &format!("{context}, {read}"));
        }
    }
}

#[test]
fn learned_positions_limit_the_context() {
    assert_eq!(model(Positions::Learned).inference(100).context(), 40);
    assert_eq!(model(Positions::Rotary).inference(100).context(), 100);
}

/// Checks the path that is taken on a GPU, with activations in f16: keys and values are in one
/// tensor that grows, plain Candle operations run, and weights have the type of the activations.
#[test]
fn without_kernels_of_our_own_texts_go_on_as_with_them() {
    for positions in ALL_POSITIONS {
        for kind in [AttentionKind::Full, AttentionKind::Sparse] {
            let [half, exact] =
                [DType::F16, DType::F32].map(|dtype| model_in(dtype, positions, kind).inference(9));
            let texts: [&[u32]; 3] = [&TEXT[..3], &[], &TEXT];
            let mut states = [&half, &exact].map(|inference| inference.start(&texts).unwrap());
            for at in 0..24 {
                let tokens: Vec<u32> = (0..3).map(|row| 4 + (row * 5 + at * 3) % 15).collect();
                let [ours, theirs] = [(&half, 0), (&exact, 1)]
                    .map(|(inference, state)| step(inference, &mut states[state], &tokens));
                for (ours, theirs) in ours.iter().zip(&theirs) {
                    assert!(distance(ours, theirs) < 2e-2, "{positions:?}, {kind:?}, step {at}");
                }
                if at % 5 == 4 {
                    // A copy of a state does not change the state, even if the copy continues in
                    // another way.
                    let mut copy = states.clone();
                    step(&half, &mut copy[0], &[4, 4, 4]);
                    for state in &mut states {
                        state.select(&[2, 0, 2]).unwrap();
                    }
                }
            }
        }
    }
}
