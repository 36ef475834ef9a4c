//! Tests of models whose activations are in f16, as on a GPU. Each must have the loss, the gradient
//! and, in decoding, the logits of the same model in f32, up to rounding.

mod common;

use candle_core::{DType, Device, Tensor};
use common::translation::step;
use common::{TestResult, relative};
use taper_model::{
    ActivationKind, Architecture, AttentionConfig, AttentionKind, Batch, Builder, CellKind,
    ContrastiveModel, ExpertsConfig, FeedForwardKind, ImageCaptioner, ImageClassifier,
    ImageEncoder, ImageShape, InContextRegressor, LanguageModel, MaskedLanguageModel, Model,
    ModelConfig, ModelError, NormKind, Objective, ParallelFeedForward, Pass, Pooling, Positions,
    QueryKeyNorm, RecurrentAttention, RecurrentConfig, RotaryConfig, RotaryScaling, Sequences,
    SpanExtractor, TextClassifier, TokenTagger, Transformer,
};
use taper_ops::Gradients;

const SOURCES: [&[u32]; 3] = [&[4, 5, 6, 7, 8, 9, 10, 3], &[8, 3], &[9, 10, 11, 3]];
const TARGETS: [&[u32]; 3] =
    [&[2, 12, 13, 14, 15, 16, 4], &[2, 5, 4, 6, 7, 8, 9], &[2, 16, 17, 18, 4, 5, 6]];

/// A small model. Its activation function has no kink, unlike relu at 0: near a kink, rounding can
/// change the gradient much.
fn base() -> ModelConfig {
    ModelConfig {
        d_model: 24,
        activation: ActivationKind::Gelu,
        d_ff: 40,
        heads: 6,
        encoder_layers: 2,
        decoder_layers: 2,
        max_positions: 100,
        ..ModelConfig::default().with_dropout(0.0)
    }
}

/// Kinds of self-attention with small chunks, each with positions that it supports. A Reformer has
/// a single bucket, because rounding can move a token to another bucket.
fn kinds() -> Vec<(String, ModelConfig)> {
    AttentionKind::ALL
        .into_iter()
        .map(|kind| {
            let own = AttentionConfig {
                kind,
                window: 3,
                random: 1,
                features: 20,
                rank: 3,
                length: 9,
                hash_rounds: 2,
                hash_buckets: 1,
                hash_chunk: 3,
                chunk: 3,
                segment: 3,
                memory: 4,
                ..AttentionConfig::default()
            };
            let full = AttentionConfig::default();
            let positions = match kind {
                AttentionKind::TransformerXl => Positions::None,
                _ => Positions::Sinusoidal,
            };
            let encoder_attention =
                if kind == AttentionKind::TransformerXl { full.clone() } else { own.clone() };
            let decoder_attention = if kind == AttentionKind::Linformer { full } else { own };
            let config = ModelConfig { encoder_attention, decoder_attention, positions, ..base() };
            (kind.name().to_owned(), config)
        })
        .collect()
}

/// Shapes of Transformers.
fn shapes() -> Vec<(String, ModelConfig)> {
    let mut all = Vec::new();
    for positions in common::ALL_POSITIONS {
        all.push((format!("{positions:?}"), ModelConfig { positions, ..base() }));
    }
    let grouped = ModelConfig { key_value_heads: Some(2), ..base() };
    let rotary = |scaling| RotaryConfig {
        scaling,
        factor: 4.0,
        original_length: Some(4),
        ..RotaryConfig::default()
    };
    let scaled = |scaling| ModelConfig {
        positions: Positions::Rotary,
        rotary: rotary(scaling),
        ..grouped.clone()
    };
    all.push(("yarn".to_owned(), scaled(RotaryScaling::Yarn)));
    let gated = ModelConfig {
        norm_kind: NormKind::Rms,
        feed_forward: FeedForwardKind::Gated,
        activation: ActivationKind::Swish,
        query_key_norm: QueryKeyNorm::PerHead,
        ..scaled(RotaryScaling::Llama3)
    };
    all.push(("gated, with norms of heads".to_owned(), gated));
    let parallel = ModelConfig {
        parallel_feed_forward: ParallelFeedForward::SharedNorm,
        embedding_norm: true,
        output_bias: true,
        output_scale: Some(0.5),
        ..grouped
    };
    all.push(("parallel".to_owned(), parallel));
    let experts =
        |per_token| ExpertsConfig { count: 4, per_token, jitter: 0.0, ..ExpertsConfig::default() };
    for per_token in [1, 2] {
        let config = ModelConfig { experts: experts(per_token), ..base() };
        all.push((format!("{per_token} of 4 experts"), config));
    }
    all
}

/// Configurations of the other architectures.
fn others() -> Vec<(String, ModelConfig)> {
    let convolutional = ModelConfig { architecture: Architecture::Convolutional, ..base() };
    let mut all = vec![("convolutional".to_owned(), convolutional)];
    for cell in [CellKind::Gru, CellKind::Lstm] {
        for attention in
            [RecurrentAttention::None, RecurrentAttention::Additive, RecurrentAttention::Dot]
        {
            let recurrent = RecurrentConfig { cell, attention, width: 20, ..Default::default() };
            let name = format!("{cell:?}, {attention:?}");
            let architecture = Architecture::Recurrent;
            all.push((name, ModelConfig { architecture, recurrent, ..base() }));
        }
    }
    all
}

/// Compares loss and gradient of a model in f16 with those in f32. `make` makes the model with
/// activations of a given type.
fn compare<M: Model>(name: &str, batch: &Batch, make: impl Fn(DType) -> M) {
    let run = |dtype| {
        let (model, scale, pass) = (make(dtype), 1.0 / batch.tokens() as f64, Pass::train(1, 1, 0));
        let output = model.loss(batch, &Objective::smoothed(0.0), scale, &pass).unwrap();
        let mut gradients = Gradients::new(model.parameters()).unwrap();
        pass.backward(&output, model.parameters(), &mut gradients).unwrap();
        (output.objective_sum * scale, gradients.flat().unwrap().copy().unwrap())
    };
    let ((half, of_half), (whole, of_whole)) = (run(DType::F16), run(DType::F32));
    let error = relative(&of_half, &of_whole);
    assert!((half / whole - 1.0).abs() < 1e-2, "{name}: {half}, in f32 {whole}");
    assert!(error < 2e-2, "{name}: gradient {error}");
}

fn built(dtype: DType) -> Builder {
    Builder::seeded(7, &Device::Cpu, dtype)
}

#[test]
fn losses_and_gradients_of_translation() {
    let answers = (0..21).map(|i| i % 19).collect();
    let batch = Batch::new(vec![Sequences::pack(&SOURCES), Sequences::pack(&TARGETS)], answers);
    for (name, config) in kinds().into_iter().chain(shapes()).chain(others()) {
        compare(&name, &batch, |dtype| Transformer::new(&config, 19, 19, built(dtype)).unwrap());
    }
}

#[test]
fn logits_of_decoding() -> TestResult {
    for (name, config) in kinds().into_iter().chain(shapes()).chain(others()) {
        let run = |dtype| -> Result<Vec<Tensor>, ModelError> {
            let inference = Transformer::new(&config, 19, 19, built(dtype))?.inference();
            let mut state = inference.start(&Sequences::pack(&SOURCES))?;
            let tokens = (0..7).map(|at| TARGETS.map(|target| target[at]));
            tokens.map(|tokens| step(&inference, &mut state, &tokens)).collect()
        };
        for (at, (half, whole)) in run(DType::F16)?.iter().zip(&run(DType::F32)?).enumerate() {
            let error = relative(half, whole);
            assert!(error < 2e-2, "{name}: step {at}: {error}");
        }
    }
    Ok(())
}

#[test]
fn logits_of_texts_that_are_read_and_continued() -> TestResult {
    let text: Vec<u32> = (0..40).map(|i| 4 + (i * i + 3 * i) % 15).collect();
    for (name, config) in kinds().into_iter().chain(shapes()) {
        let run = |dtype| -> Result<Vec<Tensor>, ModelError> {
            let inference = LanguageModel::new(&config, 19, built(dtype))?.inference(100);
            let mut state = inference.start(&[&text[..30], &[]])?;
            let step = |&token: &u32| {
                let tokens = [token; 2];
                let blocks = inference.step(&mut state, &tokens)?;
                Ok(Tensor::cat(&blocks.collect::<Result<Vec<_>, _>>()?, 0)?)
            };
            text[30..].iter().map(step).collect()
        };
        for (at, (half, whole)) in run(DType::F16)?.iter().zip(&run(DType::F32)?).enumerate() {
            let error = relative(half, whole);
            assert!(error < 2e-2, "{name}: step {at}: {error}");
        }
    }
    Ok(())
}

#[test]
fn losses_and_gradients_of_analyses() {
    let text = Sequences::pack(&SOURCES);
    let segments = Sequences { ids: vec![0; text.ids.len()], ..text.clone() };
    let streams = vec![segments, text];
    let asked = |asked: &[u32], answers: &[u32]| Batch {
        asked: Some(asked.to_vec()),
        ..Batch::new(streams.clone(), answers.to_vec())
    };
    let of_texts = asked(&[0, 8, 10], &[1, 0, 2]);
    for pooling in [Pooling::ClassToken, Pooling::Mean] {
        let config = ModelConfig { pooling, ..base() };
        compare(&format!("classes, {pooling:?}"), &of_texts, |dtype| {
            TextClassifier::new(&config, 19, 3, built(dtype)).unwrap()
        });
    }
    compare("tags", &asked(&[1, 3, 9], &[1, 0, 2]), |dtype| {
        TokenTagger::new(&base(), 19, 3, built(dtype)).unwrap()
    });
    compare("spans", &asked(&[0, 0, 8, 8, 10, 10], &[1, 3, 0, 0, 2, 3]), |dtype| {
        SpanExtractor::new(&base(), 19, built(dtype)).unwrap()
    });
    let follows = Sequences { ids: vec![0, 1, 1], lengths: vec![1; 3] };
    let masked = asked(&[1, 3, 9], &[4, 8, 3]);
    let streams = [follows].into_iter().chain(masked.streams.clone()).collect();
    compare("masks", &Batch { streams, ..masked }, |dtype| {
        MaskedLanguageModel::new(&base(), 19, true, built(dtype)).unwrap()
    });
}

#[test]
fn losses_and_gradients_of_images_and_numbers() {
    let shape = ImageShape {
        size: 12,
        channels: 3,
        patch: 4,
        mean: vec![0.4, 0.5, 0.45],
        deviation: vec![0.25, 0.3, 0.2],
    };
    let values = shape.values();
    let pixels: Vec<u32> = (0..3 * values as u32).map(|at| (at * at / 7 + 13 * at) % 256).collect();
    let images = Sequences { ids: pixels, lengths: vec![values; 3] };
    let first: Vec<u32> = (0..3).map(|image| (image * values) as u32).collect();
    for image_encoder in [ImageEncoder::Transformer, ImageEncoder::Convolutional] {
        for pooling in [Pooling::ClassToken, Pooling::Mean] {
            let config = ModelConfig { image_encoder, pooling, ..base() };
            let answers = Batch::new(vec![images.clone()], vec![1, 0, 2]);
            let batch = Batch { asked: Some(first.clone()), ..answers };
            compare(&format!("{image_encoder:?}, {pooling:?}"), &batch, |dtype| {
                ImageClassifier::new(&config, &shape, 3, built(dtype)).unwrap()
            });
        }
    }
    let texts = Sequences::pack(&TARGETS);
    let captions =
        Batch::new(vec![images.clone(), texts.clone()], (0..21).map(|i| i % 19).collect());
    compare("captions", &captions, |dtype| {
        ImageCaptioner::new(&base(), &shape, 19, built(dtype)).unwrap()
    });
    let pairs = Batch::new(vec![images, texts], vec![0; 3]);
    compare("pairs", &Batch { asked: Some(vec![6, 13, 20]), ..pairs }, |dtype| {
        ContrastiveModel::new(&base(), &shape, 19, built(dtype)).unwrap()
    });
    let numbers = |count: u32| (0..count).map(|at| (at as f32 * 0.7).sin().to_bits());
    let functions = Sequences { ids: numbers(16).collect(), lengths: vec![8, 8] };
    let points = Batch::new(vec![functions], numbers(6).collect());
    compare("numbers", &Batch { asked: Some(vec![0, 3, 6, 8, 11, 14]), ..points }, |dtype| {
        InContextRegressor::new(&base(), 2, built(dtype)).unwrap()
    });
}
