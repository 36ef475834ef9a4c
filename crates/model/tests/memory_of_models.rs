//! Tests of the memory that a whole model keeps for its backward pass. What the allocator counts is
//! compared with the formula whose result the command `inspect` prints, in f32 on a CPU.

use std::alloc::System;

use candle_core::{DType, Device};
use taper_model::{
    ActivationKind, Architecture, AttentionConfig, AttentionKind, Batch, Builder, ExpertsConfig,
    FeedForwardKind, LanguageModel, Model, ModelConfig, NormKind, NormPlacement, Objective,
    ParallelFeedForward, Pass, Pooling, Positions, QueryKeyNorm, RecurrentAttention,
    RecurrentConfig, Sequences, TextClassifier, TranslationModel,
};
use taper_ops::allocator::{Explaining, counted};
use taper_ops::rng::Counter;

#[global_allocator]
static ALLOCATOR: Explaining<System> = Explaining(System);

/// Number of tokens in each stream of a batch, such as the sources or the targets. All sequences of
/// a stream have the same length.
const TOKENS: usize = 2048;

fn sequences(length: usize) -> Sequences {
    let counter = Counter::new(3);
    let id = |index: usize| (90.0 * counter.f32_at(index as u64)) as u32;
    let ids: Vec<u32> = (0..TOKENS).map(id).collect();
    Sequences::pack(&ids.chunks(length).collect::<Vec<_>>())
}

/// Returns the bytes that are in use after a pass over `batch`, divided by the bytes that the
/// formula gives. This is the median of several runs.
fn ratio(model: &impl Model, batch: &Batch) -> f64 {
    let length = batch.streams[0].longest();
    let mut bytes = [0; 5].map(|_| {
        let ((pass, output), bytes) = counted(|| {
            let pass = Pass::train(1, 1, 0);
            let output = model.loss(batch, &Objective::default(), 1.0, &pass).unwrap();
            (pass, output)
        });
        drop((pass, output));
        bytes.expect("the allocator counts").kept
    });
    bytes.sort_unstable();
    bytes[2] as f64 / model.cost().activation_bytes(&[TOKENS; 2], length) as f64
}

fn shapes() -> Vec<ModelConfig> {
    let mut ratios = Vec::new();
    for activation in [ActivationKind::Relu, ActivationKind::Gelu] {
        for norm in [NormPlacement::Pre, NormPlacement::Post] {
            for dropout in [0.0, 0.1] {
                ratios.push(ModelConfig {
                    d_model: 64,
                    d_ff: 192,
                    heads: 4,
                    encoder_layers: 3,
                    decoder_layers: 2,
                    activation,
                    norm,
                    ..ModelConfig::default().with_dropout(dropout)
                });
            }
        }
    }
    ratios
}

fn build() -> Builder {
    Builder::seeded(1, &Device::Cpu, DType::F32)
}

/// Ratio of counted bytes to calculated bytes for a translation model, with sources and targets of
/// `length` tokens.
fn translation_ratio(shape: &ModelConfig, length: usize) -> f64 {
    let model = TranslationModel::new(shape, 90, 90, build()).unwrap();
    let streams = vec![sequences(length), sequences(length)];
    ratio(&model, &Batch::new(streams, sequences(length).ids))
}

/// Ratio of counted bytes to calculated bytes for a language model, with texts of 1,024 tokens.
fn language_model_ratio(shape: &ModelConfig) -> f64 {
    let model = LanguageModel::new(shape, 90, build()).unwrap();
    ratio(&model, &Batch::new(vec![sequences(1024)], sequences(1024).ids))
}

/// Ratio of counted bytes to calculated bytes for a classifier, with texts of 128 tokens.
fn classifier_ratio(shape: &ModelConfig) -> f64 {
    let model = TextClassifier::new(shape, 90, 3, build()).unwrap();
    let text = sequences(128);
    let segments = Sequences { ids: vec![0; TOKENS], ..text.clone() };
    let asked: Vec<u32> = (0..TOKENS as u32).step_by(128).collect();
    let answers = vec![0; asked.len()];
    let batch = Batch { asked: Some(asked), ..Batch::new(vec![segments, text], answers) };
    ratio(&model, &batch)
}

#[test]
fn what_a_model_keeps_is_known_by_formula() {
    let mut wrong = Vec::new();
    let mut check = |ratio: f64, what: &str| {
        eprintln!("{ratio:.3} {what}");
        if !(0.95..1.05).contains(&ratio) {
            wrong.push(format!("{ratio:.3}: {what}"));
        }
    };
    for shape in shapes() {
        let what = format!("{:?}, {:?}, {}", shape.activation, shape.norm, shape.residual_dropout);
        check(translation_ratio(&shape, 256), &format!("translation, {what}"));
        for positions in [Positions::Rotary, Positions::Sinusoidal] {
            let shape = ModelConfig { positions, ..shape.clone() };
            check(language_model_ratio(&shape), &format!("text, {positions:?}, {what}"));
        }
        for pooling in [Pooling::ClassToken, Pooling::Mean] {
            let shape = ModelConfig { pooling, ..shape.clone() };
            check(classifier_ratio(&shape), &format!("classes, {pooling:?}, {what}"));
        }
    }
    let shape = || shapes().remove(1);
    for kind in AttentionKind::ALL.into_iter().filter(|&kind| kind != AttentionKind::Linformer) {
        // A Reformer sorts tokens into buckets, and cuts the buckets into chunks. The number of
        // chunks depends on the text, but less so if chunks are small.
        let decoder_attention =
            AttentionConfig { kind, hash_chunk: 16, ..AttentionConfig::default() };
        let positions = match kind {
            AttentionKind::TransformerXl => Positions::None,
            _ => Positions::Sinusoidal,
        };
        check(
            language_model_ratio(&ModelConfig { decoder_attention, positions, ..shape() }),
            kind.name(),
        );
    }
    let grouped = ModelConfig { key_value_heads: Some(1), head_width: Some(24), ..shape() };
    check(language_model_ratio(&grouped), "grouped heads, text");
    check(translation_ratio(&grouped, 128), "grouped heads, translation");
    for positions in [Positions::Rotary, Positions::Sinusoidal] {
        let query_key_norm = QueryKeyNorm::PerHead;
        let normed = ModelConfig { query_key_norm, positions, ..grouped.clone() };
        check(language_model_ratio(&normed), &format!("norms of heads, text, {positions:?}"));
        check(translation_ratio(&normed, 128), &format!("norms of heads, {positions:?}"));
    }
    for per_token in [1, 2] {
        let experts = ExpertsConfig { count: 4, per_token, ..ExpertsConfig::default() };
        check(
            language_model_ratio(&ModelConfig { experts, ..shape() }),
            &format!("{per_token} of 4 experts"),
        );
    }
    for attention in
        [RecurrentAttention::None, RecurrentAttention::Additive, RecurrentAttention::Dot]
    {
        let recurrent = RecurrentConfig { attention, width: 64, ..RecurrentConfig::default() };
        let architecture = Architecture::Recurrent;
        let shape = ModelConfig { architecture, recurrent, ..shape() };
        check(translation_ratio(&shape, 16), &format!("recurrent, {attention:?}"));
    }
    let of_bart = ModelConfig { embedding_norm: true, output_bias: true, ..shape() };
    check(translation_ratio(&of_bart, 256), "embedding norm and output bias");
    let of_t5 = ModelConfig { output_scale: Some(0.125), final_dropout: 0.1, ..shape() };
    check(translation_ratio(&of_t5, 256), "output scale and dropout of the result");
    for activation in [ActivationKind::Relu, ActivationKind::Swish] {
        let (feed_forward, norm_kind) = (FeedForwardKind::Gated, NormKind::Rms);
        let gated = ModelConfig { feed_forward, norm_kind, activation, ..shape() };
        check(language_model_ratio(&gated), &format!("RMS norm and gated {activation:?}"));
    }
    for parallel_feed_forward in [ParallelFeedForward::SharedNorm, ParallelFeedForward::OwnNorm] {
        let beside = ModelConfig { parallel_feed_forward, ..shape() };
        check(language_model_ratio(&beside), &format!("text, {parallel_feed_forward:?}"));
        check(translation_ratio(&beside, 256), &format!("{parallel_feed_forward:?}"));
    }
    let convolutional = ModelConfig { architecture: Architecture::Convolutional, ..shape() };
    check(translation_ratio(&convolutional, 16), "convolutional");
    assert!(wrong.is_empty(), "{wrong:#?}");
}
