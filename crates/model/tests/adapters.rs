//! Tests of adapters (LoRA and DoRA) on every kind of layer. New adapters do not change the loss.
//! Fused operations and plain Candle operations give the same gradients of adapters. After adapters
//! are merged into the weights, the loss is the same as with separate adapters.

mod common;

use candle_core::{DType, Device};
use taper_model::{
    ActivationKind, Architecture, AttentionConfig, AttentionKind, BaseDtype, Batch, Builder,
    ContrastiveModel, FeedForwardKind, ImageCaptioner, ImageShape, LanguageModel, LoraConfig,
    MaskedLanguageModel, Model, ModelConfig, NormKind, NormPlacement, Objective, Pass, Positions,
    Sequences, SpanExtractor, TextClassifier, Tied, TokenTagger, TranslationModel, is_adapter,
    set_magnitudes,
};
use taper_ops::rng::Counter;
use taper_ops::{Adapted, Parameter, merge};

const SOURCES: [&[u32]; 3] = [&[4, 5, 6, 7, 3], &[8, 3], &[9, 10, 11, 3]];
const TARGETS: [&[u32]; 3] = [&[2, 12, 13, 14, 15], &[2, 5], &[2, 16, 17]];
const OUT: [u32; 10] = [12, 13, 14, 15, 3, 5, 3, 16, 17, 3];

fn configs() -> Vec<(&'static str, ModelConfig)> {
    let usual = ModelConfig {
        d_model: 24,
        d_ff: 40,
        heads: 3,
        encoder_layers: 2,
        decoder_layers: 2,
        ..Default::default()
    };
    let of_kind = |kind| AttentionConfig { kind, ..ModelConfig::default().decoder_attention };
    vec![
        ("pre-LN, ReLU", usual.clone()),
        (
            "post-LN, GELU",
            ModelConfig {
                norm: NormPlacement::Post,
                activation: ActivationKind::Gelu,
                ..usual.clone()
            },
        ),
        (
            "gated, grouped, rotary",
            ModelConfig {
                norm_kind: NormKind::Rms,
                activation: ActivationKind::Swish,
                feed_forward: FeedForwardKind::Gated,
                positions: Positions::Rotary,
                heads: 4,
                key_value_heads: Some(2),
                biases: false,
                tied: Tied::None,
                ..usual.clone()
            },
        ),
        (
            "linear attention and a state space",
            ModelConfig {
                encoder_attention: of_kind(AttentionKind::Linear),
                decoder_attention: of_kind(AttentionKind::Mamba),
                ..usual.clone()
            },
        ),
        ("recurrent", ModelConfig { architecture: Architecture::Recurrent, ..usual.clone() }),
        ("convolutional", ModelConfig { architecture: Architecture::Convolutional, ..usual }),
    ]
}

const SCALE: f64 = 1.0 / OUT.len() as f64;

fn batch() -> Batch {
    Batch::new(vec![Sequences::pack(&SOURCES), Sequences::pack(&TARGETS)], OUT.to_vec())
}

fn loss(model: &TranslationModel, pass: &Pass) -> taper_model::LossOutput {
    model.loss(&batch(), &Objective::smoothed(0.1), SCALE, pass).unwrap()
}

fn gradient(model: &TranslationModel, pass: Pass) -> candle_core::Tensor {
    common::differentiated(model, &batch(), &Objective::smoothed(0.1), SCALE, pass).1
}

fn values(parameter: &Parameter) -> Vec<f32> {
    parameter.values().unwrap()
}

fn check(name: &str, config: &ModelConfig, lora: &LoraConfig) {
    let builder = || Builder::seeded(7, &Device::Cpu, DType::F32);
    let plain = TranslationModel::new(config, 19, 19, builder()).unwrap();
    let model = TranslationModel::new(config, 19, 19, builder().with_adapters(lora)).unwrap();
    let store = model.parameters();
    let names = |all: &[Parameter]| -> Vec<String> {
        all.iter().map(|one| one.name().to_owned()).collect()
    };
    assert_eq!(names(store.base()), names(plain.parameters().parameters()), "{name}");
    assert!(store.parameters().iter().all(|one| is_adapter(one.name())), "{name}");
    for base in store.base() {
        let weight = plain.parameters().get(base.name()).unwrap();
        let mut start = values(weight);
        let layer = base.name().strip_suffix(".weight").unwrap_or_default();
        if store.get(&format!("{layer}.magnitude")).is_some() {
            // DoRA divides each row by its length. The first row becomes zeros, to test that this
            // does not divide by zero.
            start[..base.shape()[1]].fill(0.0);
        }
        base.set(start).unwrap();
        // The frozen weights can have been rounded when they were set.
        weight.set(values(base)).unwrap();
    }
    let held = store.base().iter().filter(|one| one.dtype() == DType::BF16);
    assert_eq!(held.count() > 6, lora.base_dtype == BaseDtype::Bf16, "{name}");
    set_magnitudes(store).unwrap();
    let of = |model: &TranslationModel| loss(model, &Pass::evaluate()).objective_sum;
    let (before, adapted) = (of(&plain), of(&model));
    assert!((adapted / before - 1.0).abs() < 1e-6, "{name}: {adapted} for {before}");

    for (key, parameter) in store.parameters().iter().enumerate() {
        let counter = Counter::new(key as u64);
        let moved = values(parameter).into_iter().enumerate();
        let moved = moved.map(|(i, value)| value + 0.2 * counter.normal_at(i as u64) as f32);
        parameter.set(moved.collect()).unwrap();
    }
    let fused = gradient(&model, Pass::train(5, 1, 0));
    let composed = gradient(&model, Pass::train(5, 1, 0).composed());
    let error = common::relative(&fused, &composed);
    assert!(error < 1e-4, "{name}: gradients {error}");
    if config.architecture == Architecture::Transformer {
        let again = gradient(&model, Pass::train(5, 1, 0).checkpointed(true));
        let [fused, again] = [&fused, &again].map(|all| all.to_vec1::<f32>().unwrap());
        assert!(fused == again, "{name}: layers that are computed again give other gradients");
    }

    let adapted = of(&model);
    assert!((adapted / before - 1.0).abs() > 1e-3, "{name}: the adapters change nothing");
    for weight in plain.parameters().parameters() {
        let Some(layer) = weight.name().strip_suffix(".weight") else { continue };
        let factor =
            |kind: &str, part: usize| store.get(&format!("{layer}.lora_{kind}.{part}")).map(values);
        let factors: Vec<_> =
            (0..).map_while(|i| Some((factor("a", i)?, factor("b", i)?))).collect();
        if factors.is_empty() {
            continue;
        }
        let magnitude = store.get(&format!("{layer}.magnitude")).map(values);
        let mut sum = values(weight);
        let adapted = Adapted {
            width: weight.shape()[1],
            factors: factors.iter().map(|(down, up)| (&down[..], &up[..])).collect(),
            scale: lora.scale(),
            magnitude: magnitude.as_deref(),
        };
        assert!(merge(&mut sum, &adapted), "{name}: {layer}");
        weight.set(sum).unwrap();
    }
    let merged = of(&plain);
    assert!((merged / adapted - 1.0).abs() < 1e-5, "{name}: {merged} merged, {adapted} apart");
}

#[test]
fn adapters_of_every_layer() {
    for (name, config) in configs() {
        let [f32, bf16] = [BaseDtype::F32, BaseDtype::Bf16];
        for (dropout, dora, base_dtype) in [
            (0.0, false, f32),
            (0.3, false, f32),
            (0.3, true, f32),
            (0.3, false, bf16),
            (0.0, true, bf16),
        ] {
            let lora = LoraConfig {
                rank: 3,
                alpha: 6.0,
                dropout,
                dora,
                base_dtype,
                ..LoraConfig::default()
            };
            let name = format!("{name}, dropout {dropout}, DoRA {dora}, {base_dtype:?}");
            check(&name, &config, &lora);
        }
    }
}

/// Frozen tables of tokens that a model holds in f32.
fn wide_tables(model: &impl Model) -> Vec<String> {
    let is_table = |name: &str| name.ends_with("embedding.weight") || name == "output.weight";
    let tables: Vec<_> =
        model.parameters().base().iter().filter(|one| is_table(one.name())).collect();
    assert!(!tables.is_empty(), "a model of texts has a table of tokens");
    let wide = tables.iter().filter(|table| table.dtype() != DType::BF16);
    wide.map(|table| table.name().to_owned()).collect()
}

/// Checks that every model of texts holds frozen tables of tokens in bf16. With these tables, a
/// classifier must give the same results as with the same values in f32.
#[test]
fn frozen_tables_of_tokens_are_held_in_bf16() {
    let config = ModelConfig { tied: Tied::None, ..configs().swap_remove(0).1 };
    let lora = LoraConfig { rank: 2, base_dtype: BaseDtype::Bf16, ..LoraConfig::default() };
    let plain = || Builder::seeded(7, &Device::Cpu, DType::F32);
    let builder = || plain().with_adapters(&lora);
    let image =
        ImageShape { size: 4, channels: 1, patch: 2, mean: vec![0.5], deviation: vec![0.5] };
    let adapted = TextClassifier::new(&config, 19, 3, builder()).unwrap();
    let wide = [
        wide_tables(&adapted),
        wide_tables(&TokenTagger::new(&config, 19, 3, builder()).unwrap()),
        wide_tables(&SpanExtractor::new(&config, 19, builder()).unwrap()),
        wide_tables(&MaskedLanguageModel::new(&config, 19, true, builder()).unwrap()),
        wide_tables(&LanguageModel::new(&config, 19, builder()).unwrap()),
        wide_tables(&TranslationModel::new(&config, 19, 23, builder()).unwrap()),
        wide_tables(&ImageCaptioner::new(&config, &image, 19, builder()).unwrap()),
        wide_tables(&ContrastiveModel::new(&config, &image, 19, builder()).unwrap()),
    ];
    assert_eq!(wide.concat(), Vec::<String>::new());

    let whole = TextClassifier::new(&config, 19, 3, plain()).unwrap();
    for base in adapted.parameters().base() {
        let weight = whole.parameters().get(base.name()).unwrap();
        base.set(values(weight)).unwrap();
        weight.set(values(base)).unwrap();
    }
    let text = Sequences::pack(&SOURCES);
    let segments = Sequences { ids: vec![0; text.ids.len()], ..text.clone() };
    let logits = |model: &TextClassifier| model.logits(&segments, &text).unwrap();
    let error = common::relative(&logits(&adapted), &logits(&whole));
    assert!(error < 1e-6, "{error}");
}

#[test]
fn some_layers_and_some_whole_parameters() {
    let (_, config) = configs().swap_remove(0);
    let lora = LoraConfig {
        rank: 2,
        layers: vec!["decoder.*.qkv".to_owned()],
        train: vec!["encoder.final_norm.*".to_owned()],
        rank_stabilized: true,
        ..LoraConfig::default()
    };
    assert!((lora.scale() - 16.0 / 2f64.sqrt()).abs() < 1e-12);
    let builder = Builder::seeded(7, &Device::Cpu, DType::F32).with_adapters(&lora);
    let model = TranslationModel::new(&config, 19, 19, builder).unwrap();
    let names: Vec<&str> = model.parameters().parameters().iter().map(Parameter::name).collect();
    assert_eq!(names.iter().filter(|name| name.contains(".qkv.lora_")).count(), 2 * 3 * 2);
    assert_eq!(names.iter().filter(|name| name.starts_with("encoder.final_norm")).count(), 2);
    assert_eq!(names.len(), 14, "{names:?}");
}
