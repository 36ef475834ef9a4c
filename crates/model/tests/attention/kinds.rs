//! Tests of kinds of self-attention. Sparse attention is compared with Longformer and BigBird
//! (reference values of `scripts/golden/attention/sparse_attention.py`). For every kind, properties
//! are checked that hold for any numbers.

use crate::common::translation::{
    batch_is_its_sentences, decodes_as_at_once, full_logits, reads_as_it_steps,
    rows_carry_their_past, tape_differentiates_as_candle, transformer,
};
use crate::common::{
    ALL_POSITIONS, TestResult, differentiated, golden, largest_difference, relative,
};
use candle_core::{DType, Device, Tensor, Var};
use taper_model::{
    AttentionConfig, AttentionKind, Batch, Builder, LanguageModel, LayerKinds, Model, ModelConfig,
    ModelError, Objective, Pass, Positions, Sequences, TextInference, TextState, Transformer,
};
use taper_ops::{
    AttentionShape, AttentionSpec, LinearSpec, Sparse, Tape, composed, linear, self_attention,
};

/// Kinds of attention in the encoder and in the decoder of a model, and the position encodings that
/// both support.
struct Kinds {
    name: &'static str,
    encoder: AttentionConfig,
    decoder: AttentionConfig,
    positions: &'static [Positions],
}

const ADDED: &[Positions] = &[Positions::Sinusoidal, Positions::Learned];
const ADDED_OR_NONE: &[Positions] = &[Positions::Sinusoidal, Positions::None];
const ADDED_OR_ROTARY: &[Positions] = &[Positions::Sinusoidal, Positions::Rotary];

fn kinds() -> Vec<Kinds> {
    let sparse =
        AttentionConfig { kind: AttentionKind::Sparse, window: 2, ..AttentionConfig::default() };
    let both = |name, own: AttentionConfig, positions| {
        let encoder = own.clone();
        Kinds { name, encoder, decoder: own, positions }
    };
    let dilated = AttentionConfig { dilation: 2, global_first: 1, ..sparse.clone() };
    let drawn = AttentionConfig { block: 2, window: 1, random: 1, ..sparse.clone() };
    let linear = AttentionConfig { kind: AttentionKind::Linear, ..AttentionConfig::default() };
    let performer = AttentionConfig {
        kind: AttentionKind::Performer,
        features: 20,
        redraw_every: 1,
        ..AttentionConfig::default()
    };
    let linformer = AttentionConfig {
        kind: AttentionKind::Linformer,
        rank: 3,
        length: 9,
        ..AttentionConfig::default()
    };
    let of_layers = |kinds: &[AttentionKind]| AttentionConfig {
        kinds: LayerKinds::new(kinds),
        features: 20,
        ..linformer.clone()
    };
    let of_kind = |kind| AttentionConfig { kind, ..AttentionConfig::default() };
    let reformer = AttentionConfig {
        hash_rounds: 2,
        hash_buckets: 4,
        hash_chunk: 3,
        ..of_kind(AttentionKind::Reformer)
    };
    let chunked = AttentionConfig { chunk: 3, ..of_kind(AttentionKind::Hierarchical) };
    let segments =
        AttentionConfig { segment: 3, memory: 4, ..of_kind(AttentionKind::TransformerXl) };
    let same =
        AttentionConfig { memory: 5, same_length: true, clamp_distance: 2, ..segments.clone() };
    let whole = AttentionConfig { segment: 500, ..segments.clone() };
    let (mamba, s4d) = (of_kind(AttentionKind::Mamba), of_kind(AttentionKind::S4d));
    let with_last = AttentionConfig { global_last: 1, ..dilated.clone() };
    vec![
        both("window", sparse.clone(), &ALL_POSITIONS),
        Kinds { encoder: with_last, ..both("dilated", dilated, &ALL_POSITIONS) },
        both("drawn", drawn, &ALL_POSITIONS),
        both("linear", linear.clone(), ADDED),
        both("performer", performer.clone(), ADDED_OR_ROTARY),
        Kinds { encoder: linformer.clone(), ..both("linformer and performer", performer, ADDED) },
        Kinds { encoder: linear, ..both("linear and sparse", sparse.clone(), ADDED) },
        both("layers", of_layers(&[AttentionKind::Performer, AttentionKind::Sparse]), ADDED),
        Kinds {
            encoder: of_layers(&[AttentionKind::Full, AttentionKind::Linformer]),
            ..both("other layers", of_layers(&[AttentionKind::Full, AttentionKind::Linear]), ADDED)
        },
        both("reformer", reformer, ADDED_OR_ROTARY),
        both("hierarchical", chunked.clone(), ADDED_OR_ROTARY),
        both("hierarchical of many levels", AttentionConfig { levels: 5, ..chunked }, ADDED),
        Kinds {
            encoder: AttentionConfig::default(),
            ..both("transformer-xl", segments.clone(), &[Positions::None])
        },
        Kinds {
            encoder: AttentionConfig::default(),
            ..both("transformer-xl of the same length", same, &[Positions::None])
        },
        Kinds {
            encoder: AttentionConfig::default(),
            ..both("transformer-xl of one segment", whole, &[Positions::None])
        },
        both("mamba", mamba, ADDED_OR_NONE),
        Kinds { encoder: s4d.clone(), ..both("s4d", s4d, ADDED) },
        both(
            "mamba and window",
            of_layers(&[AttentionKind::Mamba, AttentionKind::Sparse]),
            &ALL_POSITIONS,
        ),
    ]
}

fn config(kinds: &Kinds, positions: Positions) -> ModelConfig {
    ModelConfig {
        d_model: 24,
        d_ff: 40,
        heads: 3,
        encoder_layers: 2,
        decoder_layers: 2,
        max_positions: 200,
        positions,
        encoder_attention: kinds.encoder.clone(),
        decoder_attention: kinds.decoder.clone(),
        ..Default::default()
    }
}

fn language_model(config: &ModelConfig) -> LanguageModel {
    LanguageModel::new(config, 19, Builder::seeded(7, &Device::Cpu, DType::F32)).unwrap()
}

/// Calls `check` with the configuration and the name of each combination of kinds and positions.
fn every(check: impl Fn(&ModelConfig, &str) -> TestResult) -> TestResult {
    for kinds in kinds() {
        for &positions in kinds.positions {
            check(&config(&kinds, positions), &format!("{} {positions:?}", kinds.name))?;
        }
    }
    Ok(())
}

const SOURCES: [&[u32]; 3] = [&[4, 5, 6, 7, 8, 9, 10, 3], &[8, 3], &[9, 10, 11, 3]];
const TARGETS: [&[u32]; 3] =
    [&[2, 12, 13, 14, 15, 16, 4], &[2, 5, 4, 6, 7, 8, 9], &[2, 16, 17, 18, 4, 5, 6]];

#[test]
fn longformer_and_big_bird_agree() -> TestResult {
    let file = golden("attention/sparse-attention");
    for (case, sparse) in [
        ("window", Sparse::window(5)),
        ("global", Sparse { first: 3, ..Sparse::window(4) }),
        ("random", Sparse { block: 4, first: 1, last: 1, random: 2, seed: 7, ..Sparse::window(2) }),
    ] {
        let tensor = |name: &str| file[&format!("{case}.{name}")].to_dtype(DType::F64).unwrap();
        let var = |name: &str| Var::from_tensor(&tensor(name)).unwrap();
        let (input, weight, bias) = (var("input"), var("qkv.weight"), var("qkv.bias"));
        let length = input.dim(0)?;
        let spec = AttentionSpec {
            sparse: Some(sparse),
            ..AttentionSpec::new(AttentionShape::dividing(weight.dim(0)? / 3, 4), [length])
        };
        let tape = Tape::new();
        let qkv = linear(Some(&tape), &input, &weight, Some(&bias), None, &LinearSpec::default())?;
        let output = self_attention(Some(&tape), &qkv, None, &spec)?;
        let gradients = tape.differentiate(&output, &tensor("output_gradient"))?;
        let error = relative(&output, &tensor("output"));
        assert!(error < 1e-6, "{case}: {error}");
        for (x, name) in [(&input, "input"), (&weight, "qkv.weight"), (&bias, "qkv.bias")] {
            let gradient = gradients.get(x)?.ok_or("no gradient")?;
            let error = relative(&gradient, &tensor(&format!("grad.{name}")));
            assert!(error < 1e-6, "{case}: gradient of {name}: {error}");
        }
        let error = relative(&composed::self_attention(&qkv, None, &spec)?, &tensor("output"));
        assert!(error < 1e-6, "{case}, composed: {error}");
    }
    Ok(())
}

#[test]
fn kinds_have_the_parameters_of_full_attention() -> TestResult {
    every(|config, name| {
        let full = ModelConfig {
            encoder_attention: AttentionConfig::default(),
            decoder_attention: AttentionConfig::default(),
            ..config.clone()
        };
        let (model, full) = (transformer(config), transformer(&full));
        assert_eq!(model.cost().parameters, model.parameters().len() as u64, "{name}");
        if ["mamba", "s4d", "reformer", "transformer-xl"]
            .iter()
            .any(|other| name.starts_with(other))
        {
            return Ok(());
        }
        let names = |model: &Transformer| -> Vec<String> {
            let names = model.parameters().parameters().iter().map(|it| it.name().to_owned());
            // A Linformer has two additional matrices.
            names.filter(|name| !name.contains("_sums.")).collect()
        };
        assert_eq!(names(&model), names(&full), "{name}");
        let distance = largest_difference(
            &full_logits(&model, &SOURCES, &TARGETS)?,
            &full_logits(&full, &SOURCES, &TARGETS)?,
        );
        assert!(distance > 1e-3, "{name} is full attention");
        Ok(())
    })
}

#[test]
fn cached_decoding_is_full_decoding() -> TestResult {
    every(|config, name| {
        decodes_as_at_once(&transformer(config), (&SOURCES, &TARGETS), (name, 2e-5))
    })
}

#[test]
fn selected_rows_carry_their_past() -> TestResult {
    every(|config, name| rows_carry_their_past(&transformer(config), &SOURCES, name))
}

#[test]
fn a_batch_is_its_sentences() -> TestResult {
    every(|config, name| batch_is_its_sentences(&transformer(config), (&SOURCES, &TARGETS), name))
}

#[test]
fn the_tape_gives_the_gradients_of_candle() -> TestResult {
    every(|config, name| {
        let model = transformer(config);
        let streams = vec![Sequences::pack(&SOURCES), Sequences::pack(&TARGETS)];
        let batch = Batch::new(streams, (0..21).map(|i| i % 19).collect());
        let objective = Objective::smoothed(0.1);
        let ours = tape_differentiates_as_candle(&model, &batch, &objective, name)?;
        let pass = Pass::train(1, 1, 0).checkpointed(true);
        let (_, again) = differentiated(&model, &batch, &objective, 0.1, pass);
        assert_eq!(again.to_vec1::<f32>()?, ours.to_vec1::<f32>()?, "{name}: layers again");
        Ok(())
    })
}

/// Feeds one token to each row, and returns the logits of all rows.
fn text_step(model: &TextInference, state: &mut TextState, tokens: &[u32]) -> Tensor {
    let blocks: Vec<Tensor> =
        model.step(state, tokens).unwrap().collect::<Result<_, ModelError>>().unwrap();
    Tensor::cat(&blocks, 0).unwrap()
}

/// Checks that a model can read a text up to any of several positions and step through the rest of
/// it. The text is long enough for several chunks of linear attention.
#[test]
fn reading_is_stepping_and_the_full_forward_pass() -> TestResult {
    let text: Vec<u32> = (0..150).map(|i| 4 + (i * i + 3 * i) % 15).collect();
    every(|config, name| reads_as_it_steps(&language_model(config), &text, &[0, 1, 64, 130], name))
}

#[test]
fn texts_of_any_length_go_on_together_as_they_do_alone() -> TestResult {
    every(|config, name| {
        let model = language_model(config);
        let text: Vec<u32> = (4..16).collect();
        for context in [8, 1] {
            // Each row fills its context at a different step. Whenever its context is full, a row
            // rereads the last half of its text.
            let inference = model.inference(context);
            let texts: [&[u32]; 4] = [&text[..3], &[], &text, &text[5..6]];
            let tokens =
                |at: usize| [0, 1, 2, 3].map(|row: usize| 4 + ((row * 5 + at * 3) % 15) as u32);
            let mut together = inference.start(&texts)?;
            let mut alone = Vec::new();
            for text in texts {
                alone.push(inference.start(&[text])?);
            }
            for at in 0..12 {
                let rows = text_step(&inference, &mut together, &tokens(at));
                for (row, state) in alone.iter_mut().enumerate() {
                    let alone_logits = text_step(&inference, state, &[tokens(at)[row]]);
                    let error = largest_difference(&rows.get(row)?, &alone_logits.get(0)?);
                    assert!(error < 2e-5, "{name}: step {at}, row {row}: {error}");
                }
            }
            together.select(&[2, 0, 0])?;
            let rows = text_step(&inference, &mut together, &[9, 8, 7]);
            for (row, (state, token)) in [(2, 9), (0, 8)].into_iter().enumerate() {
                let alone_logits = text_step(&inference, &mut alone[state].clone(), &[token]);
                let error = largest_difference(&rows.get(row)?, &alone_logits.get(0)?);
                assert!(error < 2e-5, "{name}: selected row {row}: {error}");
            }
        }
        Ok(())
    })
}

#[test]
fn a_window_as_long_as_the_text_is_full_attention() -> TestResult {
    for positions in ALL_POSITIONS {
        let wide = AttentionConfig {
            kind: AttentionKind::Sparse,
            window: 8,
            ..AttentionConfig::default()
        };
        let of = |own: AttentionConfig| {
            let kinds =
                Kinds { name: "", encoder: own.clone(), decoder: own, positions: &ALL_POSITIONS };
            let model = transformer(&config(&kinds, positions));
            full_logits(&model, &SOURCES, &TARGETS).unwrap().to_vec2::<f32>().unwrap()
        };
        let full = of(AttentionConfig::default());
        assert_eq!(of(wide.clone()), full, "{positions:?}");
        assert_ne!(of(AttentionConfig { window: 3, ..wide }), full, "{positions:?}");
    }
    Ok(())
}

/// Checks that the weights of linear attention are positive and sum to one. In a decoder, only the
/// tokens up to the query have weights other than 0.
#[test]
fn linear_attention_has_weights_that_can_be_seen() -> TestResult {
    let linear = kinds().into_iter().find(|kinds| kinds.name == "linear").ok_or("no such kind")?;
    let model = transformer(&config(&linear, Positions::Sinusoidal));
    let pass = Pass::evaluate_with_attention();
    let encoded = model.encode(&Sequences::pack(&SOURCES), &pass)?;
    model.decode(&Sequences::pack(&TARGETS), &encoded, &pass)?;
    let mut seen = 0;
    for record in pass.into_attention() {
        if record.layer.ends_with("self_attention") {
            seen += 1;
            let row = record.weights.get(0)?.get(1)?.to_vec2::<f32>()?;
            let is_decoder = record.layer.starts_with("decoder");
            for (i, weights) in row.iter().enumerate() {
                assert!((weights.iter().sum::<f32>() - 1.0).abs() < 1e-4, "{}", record.layer);
                let is_seen = |j: usize| !is_decoder || j <= i;
                assert!(
                    weights.iter().enumerate().all(|(j, weight)| (*weight > 0.0) == is_seen(j))
                );
            }
        }
    }
    assert_eq!(seen, 4);
    Ok(())
}
