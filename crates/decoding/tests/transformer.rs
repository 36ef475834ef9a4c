//! Checks that different ways to search give the same results with real Transformers.

use candle_core::{DType, Device, Tensor};
use taper_decoding::{
    AlignedAttention, DecodingConfig, END, Ensemble, Hypothesis, Result, START, SamplingConfig,
    Sentence, StepModel, Translator, align, align_with, beam_search, forced_scores, greedy_search,
};
use taper_model::{Builder, Model, ModelConfig, NormPlacement, Positions, Transformer};
use taper_ops::composed::{self, Likeliest};
use taper_ops::{Kernel, Products};

/// Makes a model with random weights, whose outputs are varied.
fn model(norm: NormPlacement, positions: Positions) -> Transformer {
    let config = ModelConfig {
        d_model: 32,
        d_ff: 48,
        heads: 4,
        encoder_layers: 2,
        decoder_layers: 2,
        norm,
        positions,
        ..Default::default()
    };
    Transformer::new(&config, 23, 23, Builder::seeded(3, &Device::Cpu, DType::F32))
        .expect("a valid model")
}

fn each(check: impl Fn(&Transformer, &str)) {
    for norm in [NormPlacement::Pre, NormPlacement::Post] {
        for positions in [
            Positions::Sinusoidal,
            Positions::Learned,
            Positions::T5,
            Positions::Rotary,
            Positions::Alibi,
        ] {
            check(&model(norm, positions), &format!("{norm:?} {positions:?}"));
        }
    }
}

fn sources() -> Vec<Vec<u32>> {
    (0..13_u32)
        .map(|i| (0..1 + i * 5 % 9).map(|t| 4 + (7 * i + 3 * t) % 19).chain([END]).collect())
        .collect()
}

fn config(beam_size: usize) -> DecodingConfig {
    DecodingConfig {
        beam_size,
        n_best: beam_size,
        max_length_ratio: 1.0,
        max_length_offset: 4,
        ..DecodingConfig::default()
    }
}

fn translate(
    model: &Transformer,
    config: DecodingConfig,
    sources: &[Vec<u32>],
) -> Vec<Vec<Hypothesis>> {
    Translator::new(&model.inference(), config).expect("valid").translate(sources).expect("decodes")
}

/// Checks that, with weights in int8, no bit of a result depends on the other sentences of its
/// batch, whatever kernel computes matrix products.
#[test]
fn in_int8_a_batch_is_its_sentences_to_the_bit() {
    let mut model = model(NormPlacement::Pre, Positions::Sinusoidal);
    let before = model.inference();
    model.round_to_int8().expect("finite weights");
    let sources = sources();
    for beam_size in [1, 4] {
        let together = translate(&model, config(beam_size), &sources);
        for (source, together) in sources.iter().zip(&together) {
            let alone = translate(&model, config(beam_size), std::slice::from_ref(source));
            assert_eq!(&alone[0], together);
        }
        // Rounding to int8 has an effect, at least on scores.
        let exact = Translator::new(&before, config(beam_size)).expect("valid");
        assert_ne!(exact.translate(&sources).expect("decodes"), together);
    }
}

fn assert_close(ours: &Hypothesis, theirs: &Hypothesis, name: &str) {
    assert_eq!(ours.tokens, theirs.tokens, "{name}");
    assert!(
        (ours.log_probability - theirs.log_probability).abs() < 1e-4,
        "{name}: {} {}",
        ours.log_probability,
        theirs.log_probability
    );
}

#[test]
fn a_batch_is_its_sentences() {
    each(|model, name| {
        for beam_size in [1, 4] {
            let together = translate(model, config(beam_size), &sources());
            for (source, expected) in sources().iter().zip(&together) {
                let alone =
                    translate(model, config(beam_size), std::slice::from_ref(source)).remove(0);
                if Kernel::best(Products::F32) == Kernel::Gemm {
                    assert_close(&alone[0], &expected[0], name);
                } else {
                    assert_eq!(&alone, expected, "{name}");
                }
            }
        }
    });
}

#[test]
fn a_beam_of_one_is_greedy() {
    each(|model, name| {
        let sources = sources();
        let slices: Vec<&[u32]> = sources.iter().map(Vec::as_slice).collect();
        // With a length penalty, the beam could continue although the end is the likeliest token.
        let config = DecodingConfig { length_penalty: 0.0, ..config(1) };
        let beam = beam_search(&model.inference(), &slices, &config).expect("decodes");
        let greedy = greedy_search(&model.inference(), &slices, &config).expect("decodes");
        assert_eq!((beam.len(), greedy.len()), (sources.len(), sources.len()));
        for (beam, greedy) in beam.iter().zip(&greedy) {
            assert_close(&beam[0], greedy, name);
        }
    });
}

#[test]
fn outputs_end_where_learned_positions_do() {
    let of_positions = |max_positions| {
        let config = ModelConfig {
            max_positions,
            positions: Positions::Learned,
            ..model(NormPlacement::Pre, Positions::Learned).config().clone()
        };
        Transformer::new(&config, 23, 23, Builder::seeded(3, &Device::Cpu, DType::F32))
            .expect("a valid model")
            .inference()
    };
    let members = [of_positions(12), of_positions(8)];
    let ensemble = Ensemble::new(&members).expect("one vocabulary");
    let sources: Vec<Vec<u32>> = sources().into_iter().filter(|source| source.len() <= 8).collect();
    let drawn = SamplingConfig { temperature: 1.0, ..SamplingConfig::default() };
    for config in [config(1), config(4), DecodingConfig { sampling: drawn, ..config(2) }] {
        // The model has too few positions for the minimum length, so all outputs reach the maximum
        // length.
        let config = DecodingConfig { min_length: 20, max_length_offset: 30, ..config };
        let alone = Translator::new(&members[0], config.clone())
            .expect("valid")
            .translate(&sources)
            .expect("decodes");
        assert!(alone.iter().flatten().all(|hypothesis| hypothesis.tokens.len() == 11));
        let together = Translator::new(&ensemble, config)
            .expect("valid")
            .translate(&sources)
            .expect("decodes");
        assert!(together.iter().flatten().all(|hypothesis| hypothesis.tokens.len() == 7));
    }
}

#[test]
fn the_forced_score_is_the_beams() {
    each(|model, name| {
        let inference = model.inference();
        let translator = Translator::new(&inference, config(4)).expect("valid");
        let translations = translator.translate(&sources()).expect("decodes");
        for rank in 0..4 {
            let targets: Vec<Vec<u32>> =
                translations.iter().map(|hypotheses| hypotheses[rank].tokens.clone()).collect();
            let forced = translator.score(&sources(), &targets).expect("scores");
            for (forced, hypotheses) in forced.iter().zip(&translations) {
                let expected = hypotheses[rank].log_probability;
                assert!(
                    (forced.log_probability - expected).abs() < 1e-4,
                    "{name}: {} {expected}",
                    forced.log_probability
                );
            }
        }
    });
}

#[test]
fn one_model_several_times_is_that_model() {
    each(|model, name| {
        let same = [model.inference(), model.inference(), model.inference()];
        for (count, beam_size) in [(2, 1), (2, 4), (3, 1), (3, 4)] {
            let ensemble = Ensemble::new(&same[..count]).expect("one vocabulary");
            let alone = translate(model, config(beam_size), &sources());
            let together = Translator::new(&ensemble, config(beam_size))
                .expect("valid")
                .translate(&sources())
                .expect("decodes");
            assert_eq!(alone, together, "{name}, {count} times");
        }
    });
}

#[test]
fn an_alignment_has_a_source_token_for_each_target_token() {
    each(|model, name| {
        let sources = sources();
        let targets: Vec<Vec<u32>> = translate(model, config(4), &sources)
            .into_iter()
            .map(|mut found| found.remove(0).tokens)
            .collect();
        let slices: Vec<&[u32]> = sources.iter().map(Vec::as_slice).collect();
        let outputs: Vec<&[u32]> = targets.iter().map(Vec::as_slice).collect();
        let aligned = align(model, AlignedAttention::default(), &slices, &outputs).expect("aligns");
        for ((alignment, source), target) in aligned.iter().zip(&sources).zip(&targets) {
            assert_eq!(alignment.weights.len(), target.len(), "{name}");
            for row in &alignment.weights {
                assert_eq!(row.len(), source.len(), "{name}");
                assert!((row.iter().sum::<f32>() - 1.0).abs() < 1e-5, "{name}");
            }
            let expected = if source.len() > 1 { target.len() } else { 0 };
            assert_eq!(alignment.pairs.len(), expected, "{name}");
            for (place, &(from, to)) in alignment.pairs.iter().enumerate() {
                assert_eq!(to, place, "{name}");
                let row = &alignment.weights[to][..source.len() - 1];
                assert!(row.iter().all(|&weight| weight <= row[from]), "{name}");
            }
        }
        // The alignment of a sentence is the same without the others.
        let alone = align(model, AlignedAttention::default(), &slices[3..4], &outputs[3..4])
            .expect("aligns");
        assert_eq!(alone[0].pairs, aligned[3].pairs, "{name}");
    });
}

#[test]
fn what_comes_from_the_end_of_a_source_on_is_in_no_pair() {
    // The source of a multilingual model can end with a token that names its language.
    let (model, language) = (model(NormPlacement::Pre, Positions::Sinusoidal), 22);
    for end in [END, 4] {
        for length in 0..30_u32 {
            let text = (0..length).map(|token| 5 + (3 * token + length) % 17);
            let source: Vec<u32> = text.chain([end, language]).collect();
            let aligner = (&model, START, end);
            let (attention, target) = (AlignedAttention::default(), [5, 9, 7, 6, 11]);
            let mut pairs = Vec::new();
            align_with(aligner, attention, &[&source], &[&target], |one| pairs = one.pairs)
                .expect("aligns");
            assert_eq!(pairs.len(), if length > 0 { target.len() } else { 0 });
            assert!(pairs.iter().all(|&(from, _)| from < length as usize), "{pairs:?}");
        }
    }
}

#[test]
fn targets_of_empty_sources_are_aligned_with_nothing() {
    let model = model(NormPlacement::Pre, Positions::Sinusoidal);
    let aligned = |sources: &[&[u32]], targets: &[&[u32]]| {
        align(&model, AlignedAttention::default(), sources, targets).expect("aligns")
    };
    let among_others = aligned(&[&[], &[5, END]], &[&[6, 7], &[8]]);
    let alone = aligned(&[&[]], &[&[6, 7]]);
    assert_eq!(alone[0], among_others[0]);
    assert!(alone[0].pairs.is_empty());
    assert_eq!(alone[0].weights, vec![Vec::<f32>::new(); 2]);
}

/// Aligns sentences that need several batches, because there are many of them and one is very long.
#[test]
fn alignments_keep_their_order_over_batches() {
    let model = model(NormPlacement::Pre, Positions::Sinusoidal);
    let short: Vec<Vec<u32>> = (0..40_u32)
        .map(|i| (0..3 + i % 5).map(|t| 4 + (5 * i + t) % 19).chain([END]).collect())
        .collect();
    let mut sources = short;
    sources[7] = (0..600_u32).map(|t| 4 + t % 19).chain([END]).collect();
    let targets: Vec<Vec<u32>> = sources
        .iter()
        .map(|source| source[..source.len() - 1].iter().rev().copied().collect())
        .collect();
    let slices: Vec<&[u32]> = sources.iter().map(Vec::as_slice).collect();
    let outputs: Vec<&[u32]> = targets.iter().map(Vec::as_slice).collect();
    let aligned = align(&model, AlignedAttention::default(), &slices, &outputs).expect("aligns");
    assert_eq!(aligned.len(), sources.len());
    for (place, alignment) in aligned.iter().enumerate() {
        let alone = align(
            &model,
            AlignedAttention::default(),
            &slices[place..=place],
            &outputs[place..=place],
        )
        .expect("aligns")
        .remove(0);
        assert_eq!(alignment.pairs, alone.pairs, "sentence {place}");
    }
}

/// A model that finds the likeliest tokens itself instead of returning all logits, in the same way
/// as models on a GPU.
struct Finding<M>(M);

impl<M: StepModel> StepModel for Finding<M> {
    type State = M::State;

    fn vocabulary_size(&self) -> usize {
        self.0.vocabulary_size()
    }

    fn longest_output(&self) -> Option<usize> {
        self.0.longest_output()
    }

    fn start(&self, sources: &[&[u32]]) -> Result<M::State> {
        self.0.start(sources)
    }

    fn step(
        &self,
        state: &mut M::State,
        tokens: &[u32],
        read: impl FnMut(&[f32]) -> Result<()>,
    ) -> Result<()> {
        self.0.step(state, tokens, read)
    }

    fn finds_likeliest(&self) -> bool {
        true
    }

    fn step_likeliest(
        &self,
        state: &mut M::State,
        tokens: &[u32],
        count: usize,
        also: &[u32],
    ) -> Result<Vec<Likeliest>> {
        let mut found = Vec::new();
        self.step(state, tokens, |logits| {
            let rows = logits.len() / self.vocabulary_size();
            let also = &also[found.len()..found.len() + rows];
            let logits = Tensor::from_slice(logits, (rows, self.vocabulary_size()), &Device::Cpu);
            found.extend(logits.and_then(|x| composed::likeliest(&x, count, also)).expect("rows"));
            Ok(())
        })?;
        Ok(found)
    }

    fn select(&self, state: &mut M::State, rows: &[usize]) -> Result<()> {
        self.0.select(state, rows)
    }
}

/// Checks, in f32 and in f16, that every search gives the same result with only the likeliest
/// tokens of each row as with all logits.
#[test]
fn a_few_tokens_of_each_row_are_enough() {
    let sources = sources();
    let slices: Vec<&[u32]> = sources.iter().map(Vec::as_slice).collect();
    let sampled = |top_k, top_p| SamplingConfig {
        temperature: 0.8,
        top_k,
        top_p,
        ..SamplingConfig::default()
    };
    let configs = [
        config(1),
        config(4),
        DecodingConfig { min_length: 3, no_repeat_ngram: 2, allow_unknown: true, ..config(3) },
        DecodingConfig { max_length_ratio: 0.0, max_length_offset: 2, ..config(4) },
        DecodingConfig { repetition_penalty: 1.7, ..config(4) },
        DecodingConfig { sampling: sampled(5, 1.0), ..config(3) },
        DecodingConfig { sampling: sampled(6, 0.7), ..config(3) },
        DecodingConfig { sampling: sampled(0, 0.9), ..config(3) },
    ];
    for dtype in [DType::F32, DType::F16] {
        let plain = model(NormPlacement::Pre, Positions::Sinusoidal);
        let model =
            Transformer::new(plain.config(), 23, 23, Builder::seeded(3, &Device::Cpu, dtype))
                .unwrap();
        let (all, few) = (model.inference(), Finding(model.inference()));
        let prefixes: Vec<Vec<u32>> = (0..sources.len() as u32)
            .map(|i| (0..i % 4).map(|t| 4 + (i + t) % 19).collect())
            .collect();
        for config in &configs {
            let all = Translator::new(&all, config.clone()).expect("valid");
            let few = Translator::new(&few, config.clone()).expect("valid");
            let begun: Vec<Sentence<'_>> = (0..)
                .zip(sources.iter().zip(&prefixes))
                .map(|(number, (source, prefix))| Sentence {
                    source,
                    prefix,
                    phrases: &[],
                    candidates: None,
                    number,
                })
                .collect();
            for (all, few) in [
                (all.translate(&sources), few.translate(&sources)),
                (all.translate_sentences(&begun, |_| ()), few.translate_sentences(&begun, |_| ())),
            ] {
                let (all, few) = (all.expect("decodes"), few.expect("decodes"));
                for (all, few) in all.iter().flatten().zip(few.iter().flatten()) {
                    assert_close(few, all, &format!("{dtype:?}, {config:?}"));
                }
            }
        }
        let targets: Vec<&[u32]> = prefixes.iter().map(Vec::as_slice).collect();
        let [all, few] = [
            forced_scores(&all, &slices, &targets, &configs[0]),
            forced_scores(&few, &slices, &targets, &configs[0]),
        ]
        .map(|scores| scores.expect("scores"));
        for (all, few) in all.iter().zip(&few) {
            assert!((all.log_probability - few.log_probability).abs() < 1e-4);
        }
    }
}
