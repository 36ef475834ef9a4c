//! Tests of shapes of attention. A shape says how many heads share keys and values, how wide heads
//! are, which factor scores have, and which biases there are. Shapes are compared with PyTorch
//! (`scripts/golden/attention/grouped_attention.py`), and properties are checked that every shape
//! has for any numbers.

use crate::common::translation::{
    decodes_as_at_once, reads_as_it_steps, tape_differentiates_as_candle, transformer,
};
use crate::common::{TestResult, golden, lengths, relative};
use candle_core::{DType, Device, Tensor, Var};
use taper_model::{
    AttentionConfig, AttentionKind, Batch, Builder, Guidance, LanguageModel, LayerKinds, Model,
    ModelConfig, NormKind, NormPlacement, Objective, ParallelFeedForward, Positions, QueryKeyNorm,
    RotaryConfig, RotaryPairs, RotaryScaling, Sequences, Tied, Transformer, UnprojectedAttention,
};
use taper_ops::{
    AttentionShape, AttentionSpec, LinearSpec, NormSpec, NormedColumns, Tape, Turns, composed,
    cross_attention, linear, norm_columns, rotary, self_attention,
};

#[test]
fn grouped_attention_is_pytorchs() -> TestResult {
    let file = golden("attention/grouped-attention");
    let multi_query = AttentionShape { scale: 1.0, ..AttentionShape::with_heads(3, 4).grouped(1) };
    let across = AttentionShape { scale: 0.3, ..AttentionShape::with_heads(6, 4).grouped(3) };
    let grouped = AttentionShape::with_heads(4, 6).grouped(2);
    let (layer, rms) = (NormSpec::layer(1e-5), NormSpec::rms(1e-5));
    for (case, shape, norm) in [
        ("grouped", grouped, None),
        ("multi_query", multi_query, None),
        ("cross", across, None),
        ("norm_per_head", grouped, Some(rms)),
        ("norm_of_all_heads", grouped, Some(layer)),
        ("cross_norm", AttentionShape::with_heads(6, 4).grouped(3), Some(rms)),
    ] {
        let tensor = |name: &str| file[&format!("{case}.{name}")].clone();
        let query_lengths = lengths(&tensor("query_lengths"));
        let is_cross = case.starts_with("cross");
        let key_lengths =
            if is_cross { lengths(&tensor("key_lengths")) } else { query_lengths.clone() };
        let spec = AttentionSpec {
            key_lengths: key_lengths.into(),
            causal: !is_cross && case != "multi_query",
            ..AttentionSpec::new(shape, query_lengths.clone())
        };
        let differentiated = format!("{case}.grad.");
        let names = file.keys().filter_map(|name| name.strip_prefix(&differentiated));
        let vars: Vec<(&str, Var)> =
            names.map(|name| (name, Var::from_tensor(&tensor(name)).unwrap())).collect();
        let some = |name: &str| {
            vars.iter().find(|(other, _)| *other == name).map(|(_, var)| var.as_tensor())
        };
        let var = |name: &str| some(name).unwrap();
        // Normalises the first columns of `x`, if the case has norms. `parts` has the names of the
        // norms, each with its number of columns.
        let normed = |tape: Option<&Tape>, x: Tensor, parts: &[(&str, usize)]| {
            let Some(spec) = norm else { return Ok(x) };
            let part = |&(part, columns): &(&str, usize)| NormedColumns {
                columns,
                weight: var(&format!("{part}_norm.weight")),
                bias: some(&format!("{part}_norm.bias")),
            };
            norm_columns(tape, &x, &parts.iter().map(part).collect::<Vec<_>>(), &spec)
        };
        // Projects `x` by `count` rows of the weight, from row `first` on.
        let projected = |tape: Option<&Tape>, x: &Tensor, first: usize, count: usize| {
            let part = |name: &str| {
                composed::on_tape(tape, "part", &[var(name)], |inputs| {
                    inputs[0].narrow(0, first, count)
                })
            };
            let (weight, bias) = (part("qkv.weight")?, part("qkv.bias")?);
            linear(tape, x, &weight, Some(&bias), None, &LinearSpec::default())
        };
        let run = |tape: Option<&Tape>| -> candle_core::Result<Tensor> {
            let (width, all) = (shape.query_width(), shape.projected_width());
            let mixed = if is_cross {
                let query = projected(tape, var("query"), 0, width)?;
                let query = normed(tape, query, &[("query", width)])?;
                let key_value = projected(tape, var("key"), width, all - width)?;
                let key_value = normed(tape, key_value, &[("key", shape.key_value_width())])?;
                cross_attention(tape, &query, &key_value, None, &spec)?
            } else {
                let qkv = projected(tape, var("query"), 0, all)?;
                let parts = [("query", width), ("key", shape.key_value_width())];
                let mut qkv = normed(tape, qkv, &parts)?;
                if spec.causal {
                    let at = query_lengths.iter().flat_map(|&length| 0..length as u32).collect();
                    let turned = width + shape.key_value_width();
                    let turns = (&at, Turns::default());
                    qkv = rotary(tape, &qkv, turns, shape.head_width, turned)?;
                }
                self_attention(tape, &qkv, None, &spec)?
            };
            linear(tape, &mixed, var("out.weight"), None, None, &LinearSpec::default())
        };
        let tape = Tape::new();
        let output = run(Some(&tape))?;
        let error = relative(&output, &tensor("output"));
        assert!(error < 3e-6, "{case}: {error}");
        // Without a tape (a record of operations for the backward pass), Candle tracks the
        // variables, and then the plain Candle operations run.
        let composed = run(None)?;
        let error = relative(&composed, &tensor("output"));
        assert!(error < 3e-6, "{case}, composed: {error}");
        let gradients = tape.differentiate(&output, &tensor("output_gradient"))?;
        let theirs = composed.mul(&tensor("output_gradient"))?.sum_all()?.backward()?;
        for (name, var) in &vars {
            let expected = tensor(&format!("grad.{name}"));
            let error = relative(&gradients.get(var)?.ok_or("no gradient")?, &expected);
            assert!(error < 1e-5, "{case}: gradient of {name}: {error}");
            let error = relative(theirs.get(var).ok_or("no gradient")?, &expected);
            assert!(error < 1e-5, "{case}, composed: gradient of {name}: {error}");
        }
    }
    Ok(())
}

/// Configurations of each shape, with their names.
fn shapes() -> Vec<(&'static str, ModelConfig)> {
    let base = ModelConfig {
        d_model: 24,
        d_ff: 40,
        heads: 6,
        encoder_layers: 2,
        decoder_layers: 2,
        max_positions: 200,
        ..ModelConfig::default()
    };
    let grouped = ModelConfig { key_value_heads: Some(2), ..base.clone() };
    let rotary = Positions::Rotary;
    let window =
        AttentionConfig { kind: AttentionKind::Sparse, window: 3, ..AttentionConfig::default() };
    let drawn = AttentionConfig { block: 2, random: 1, ..window.clone() };
    let hybrid = AttentionConfig {
        kinds: LayerKinds::new(&[AttentionKind::Mamba, AttentionKind::Full]),
        ..AttentionConfig::default()
    };
    vec![
        ("grouped", grouped.clone()),
        ("grouped, rotary", ModelConfig { positions: rotary, ..grouped.clone() }),
        (
            "multi-query, ALiBi",
            ModelConfig { key_value_heads: Some(1), positions: Positions::Alibi, ..base.clone() },
        ),
        (
            "wide heads, rotary",
            ModelConfig { head_width: Some(10), positions: rotary, ..base.clone() },
        ),
        (
            "narrow grouped heads",
            ModelConfig { head_width: Some(3), heads: 5, key_value_heads: Some(1), ..base.clone() },
        ),
        (
            "T5's scores",
            ModelConfig {
                attention_scale: Some(1.0),
                positions: Positions::T5,
                biases: false,
                head_width: Some(2),
                ..grouped.clone()
            },
        ),
        (
            "umT5's tables",
            ModelConfig {
                positions: Positions::T5,
                relative_buckets: 6,
                relative_distance: 9,
                relative_by_layer: true,
                ..base.clone()
            },
        ),
        (
            "T5's stacks",
            ModelConfig {
                attention_scale: Some(1.0),
                positions: Positions::T5,
                relative_buckets: 6,
                relative_distance: 9,
                output_scale: Some(0.2),
                final_dropout: 0.1,
                tied: Tied::Embeddings,
                biases: false,
                ..base.clone()
            },
        ),
        (
            "Qwen2's biases",
            ModelConfig { biases: false, query_key_value_biases: Some(true), ..grouped.clone() },
        ),
        (
            "no bias of the result",
            ModelConfig { attention_output_biases: Some(false), ..base.clone() },
        ),
        (
            "biases of the result alone",
            ModelConfig {
                attention_biases: false,
                attention_output_biases: Some(true),
                ..base.clone()
            },
        ),
        (
            "sparse",
            ModelConfig {
                encoder_attention: drawn,
                decoder_attention: window,
                head_width: Some(6),
                ..grouped.clone()
            },
        ),
        ("hybrid", ModelConfig { decoder_attention: hybrid.clone(), ..grouped.clone() }),
        (
            "umT5's tables in a hybrid",
            ModelConfig {
                positions: Positions::T5,
                relative_by_layer: true,
                decoder_attention: hybrid,
                ..base.clone()
            },
        ),
        (
            "beside a feed-forward layer, one norm",
            ModelConfig {
                parallel_feed_forward: ParallelFeedForward::SharedNorm,
                positions: rotary,
                rotary: RotaryConfig { width: Some(2), ..RotaryConfig::default() },
                ..base.clone()
            },
        ),
        (
            "beside a feed-forward layer, two norms",
            ModelConfig {
                parallel_feed_forward: ParallelFeedForward::OwnNorm,
                positions: rotary,
                rotary: RotaryConfig {
                    width: Some(4),
                    pairs: RotaryPairs::Interleaved,
                    ..RotaryConfig::default()
                },
                head_width: Some(6),
                ..grouped.clone()
            },
        ),
        (
            "a norm of each head",
            ModelConfig {
                query_key_norm: QueryKeyNorm::PerHead,
                norm_kind: NormKind::Rms,
                positions: rotary,
                ..grouped.clone()
            },
        ),
        (
            "a norm of all heads",
            ModelConfig {
                query_key_norm: QueryKeyNorm::AllHeads,
                norm_kind: NormKind::LayerWithoutBias,
                head_width: Some(6),
                ..grouped
            },
        ),
    ]
}

const SOURCES: [&[u32]; 3] = [&[4, 5, 6, 7, 8, 9, 10, 3], &[8, 3], &[9, 10, 11, 3]];
const TARGETS: [&[u32]; 3] =
    [&[2, 12, 13, 14, 15, 16, 4], &[2, 5, 4, 6, 7, 8, 9], &[2, 16, 17, 18, 4, 5, 6]];

#[test]
fn projections_are_as_wide_as_their_heads() {
    for (name, config) in shapes() {
        let model = transformer(&config);
        let shape = config.attention_shape();
        let dims =
            |parameter: &str| model.parameters().get(parameter).map(|it| it.shape().to_vec());
        let layer = "encoder.layers.1.self_attention";
        let (q, k, d) = (shape.query_width(), shape.key_value_width(), config.d_model);
        assert_eq!(dims(&format!("{layer}.qkv.weight")), Some(vec![q + 2 * k, d]), "{name}");
        assert_eq!(dims(&format!("{layer}.out.weight")), Some(vec![d, q]), "{name}");
        let of_qkv = config.has_query_key_value_biases().then(|| vec![q + 2 * k]);
        assert_eq!(dims(&format!("{layer}.qkv.bias")), of_qkv, "{name}");
        let of_out = config.has_attention_output_biases().then(|| vec![d]);
        assert_eq!(dims(&format!("{layer}.out.bias")), of_out, "{name}");
        let cross = "decoder.layers.1.cross_attention";
        assert_eq!(dims(&format!("{cross}.q.weight")), Some(vec![q, d]), "{name}");
        assert_eq!(dims(&format!("{cross}.kv.weight")), Some(vec![2 * k, d]), "{name}");
        let of_norms = match config.query_key_norm {
            QueryKeyNorm::None => [None, None],
            QueryKeyNorm::PerHead => [Some(vec![shape.head_width]), Some(vec![shape.head_width])],
            QueryKeyNorm::AllHeads => [Some(vec![q]), Some(vec![k])],
        };
        for layer in [layer, cross] {
            let norms = ["query", "key"].map(|part| dims(&format!("{layer}.{part}_norm.weight")));
            assert_eq!(norms, of_norms, "{name}");
        }
        assert_eq!(model.cost().parameters, model.parameters().len() as u64, "{name}");
    }
}

/// Compares decoding token by token with one pass over the whole target. In f32 they are equal up
/// to small errors, in bf16 up to the rounding of products, and in int8 up to the rounding of
/// weights and activations.
#[test]
fn cached_decoding_is_full_decoding() -> TestResult {
    for (name, config) in shapes() {
        for (dtype, is_int8, bound) in
            [(DType::F32, false, 2e-5), (DType::BF16, false, 5e-2), (DType::F32, true, 0.2)]
        {
            let builder = Builder::seeded(7, &Device::Cpu, dtype);
            let mut model = Transformer::new(&config, 19, 19, builder)?;
            if is_int8 {
                model.round_to_int8()?;
            }
            let name = format!("{name}, {dtype:?}, int8 {is_int8}");
            decodes_as_at_once(&model, (&SOURCES, &TARGETS), (&name, bound))?;
        }
    }
    Ok(())
}

#[test]
fn reading_is_stepping_and_the_full_forward_pass() -> TestResult {
    let text: Vec<u32> = (0..40).map(|i| 4 + (i * i + 3 * i) % 15).collect();
    for (name, config) in shapes() {
        let model = LanguageModel::new(&config, 19, Builder::seeded(7, &Device::Cpu, DType::F32))?;
        reads_as_it_steps(&model, &text, &[0, 1, 33], name)?;
    }
    Ok(())
}

#[test]
fn the_tape_gives_the_gradients_of_candle() -> TestResult {
    for (name, config) in shapes() {
        let streams = vec![Sequences::pack(&SOURCES), Sequences::pack(&TARGETS)];
        // If heads share keys in this shape, the guided head also shares its keys with another
        // head.
        let links = vec![(1, 2), (8, 9), (15, 10)];
        let batch = Batch { links, ..Batch::new(streams, (0..21).map(|i| i % 19).collect()) };
        let guidance = Some(Guidance { weight: 0.3, layer: None, head: 4 });
        let objective = Objective { guidance, ..Objective::smoothed(0.1) };
        tape_differentiates_as_candle(&transformer(&config), &batch, &objective, name)?;
    }
    Ok(())
}

#[test]
fn impossible_shapes_are_named() {
    let base = ModelConfig { d_model: 24, heads: 6, ..ModelConfig::default() };
    let refused = |config: ModelConfig| {
        Transformer::new(&config, 19, 19, Builder::outline()).map(|_| ()).unwrap_err().to_string()
    };
    let rotations = |scaling, slow| RotaryConfig {
        scaling,
        original_length: Some(64),
        slow_rotations: Some(slow),
        ..RotaryConfig::default()
    };
    for (config, message) in [
        (
            ModelConfig { key_value_heads: Some(4), ..base.clone() },
            "model.key_value_heads = 4 does not divide model.heads = 6",
        ),
        (ModelConfig { key_value_heads: Some(0), ..base.clone() }, "model.key_value_heads = 0"),
        (ModelConfig { head_width: Some(0), ..base.clone() }, "model.head_width = 0"),
        (
            ModelConfig { head_width: Some(3), positions: Positions::Rotary, ..base.clone() },
            "even width of a head, and model.head_width is 3",
        ),
        (ModelConfig { heads: 5, ..base.clone() }, "or set model.head_width"),
        (
            ModelConfig {
                rotary: RotaryConfig { width: Some(6), ..RotaryConfig::default() },
                ..base.clone()
            },
            "model.rotary.width = 6: it must be an even number from 2 to 4",
        ),
        (
            ModelConfig { rotary: rotations(RotaryScaling::Llama3, 4.0), ..base.clone() },
            "fast_rotations is 4: the first must be below the second",
        ),
        (
            ModelConfig { rotary: rotations(RotaryScaling::Yarn, 0.0), ..base.clone() },
            "fast_rotations is 32: the first must be above 0 and below the second",
        ),
        (
            ModelConfig {
                parallel_feed_forward: ParallelFeedForward::SharedNorm,
                norm: NormPlacement::Post,
                ..base.clone()
            },
            "set model.norm = \"pre\"",
        ),
        (ModelConfig { attention_scale: Some(0.0), ..base.clone() }, "model.attention_scale = 0"),
        (
            ModelConfig { attention_scale: Some(f64::NAN), ..base.clone() },
            "model.attention_scale = NaN",
        ),
        (
            ModelConfig { head_width: Some(usize::MAX / 300), ..base.clone() },
            "model.heads * model.head_width",
        ),
    ] {
        let error = refused(config);
        assert!(error.contains(message), "{error}");
    }
    for kind in AttentionKind::ALL {
        let attention = AttentionConfig { kind, ..AttentionConfig::default() };
        let stacks = match kind {
            AttentionKind::Linformer => {
                ModelConfig { encoder_attention: attention, ..base.clone() }
            }
            _ => ModelConfig { decoder_attention: attention, ..base.clone() },
        };
        let stacks = ModelConfig { positions: Positions::None, ..stacks };
        let is_supported =
            matches!(kind, AttentionKind::Full | AttentionKind::Sparse) || kind.is_state_space();
        for (key, config) in [
            ("key_value_heads", ModelConfig { key_value_heads: Some(2), ..stacks.clone() }),
            ("head_width", ModelConfig { head_width: Some(8), ..stacks.clone() }),
            ("attention_scale", ModelConfig { attention_scale: Some(1.0), ..stacks.clone() }),
            (
                "query_key_norm",
                ModelConfig { query_key_norm: QueryKeyNorm::PerHead, ..stacks.clone() },
            ),
        ] {
            let made = Transformer::new(&config, 19, 19, Builder::outline());
            match made.map(|_| ()) {
                Ok(()) => assert!(is_supported, "{kind:?} {key}"),
                Err(error) => {
                    let error = error.to_string();
                    assert!(!is_supported && error.contains(kind.name()), "{error}");
                    assert!(error.contains(&format!("model.{key} is for \"full\"")), "{error}");
                }
            }
        }
        let biases = ModelConfig { query_key_value_biases: Some(false), ..stacks };
        assert!(Transformer::new(&biases, 19, 19, Builder::outline()).is_ok(), "{kind:?}");
    }
}

/// Checks the number of operations, and the bytes that are kept for a short and for a long
/// sequence.
#[test]
fn costs_follow_the_heads() {
    let base = ModelConfig { d_model: 64, heads: 4, ..ModelConfig::default() };
    let grouped = ModelConfig { key_value_heads: Some(1), head_width: Some(24), ..base };
    for causal in [false, true] {
        let attention = UnprojectedAttention::new(&grouped, causal, 0).unwrap();
        assert_eq!(attention.input_width(), 6 * 24);
        // The FLOPs are those of the scores and weighted sums of four heads.
        assert_eq!(attention.forward_flops(10), (4 * 4 * 24 * 100) as f64);
        // For a short sequence, the result and the weights are kept.
        assert_eq!(attention.kept_bytes(10), (4 * (10 * 96 + 4 * 100)) as f64);
        // For a long sequence, the result is kept, and one number for each query and head.
        assert_eq!(attention.kept_bytes(2048), (4 * 2048 * (96 + 4)) as f64);
    }
}
