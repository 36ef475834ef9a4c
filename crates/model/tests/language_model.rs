//! Tests of the decoder-only model. Its loss, logits and gradients are compared with PyTorch, and
//! its properties are checked with random numbers.

mod common;

use candle_core::{DType, Device, Tensor};
use common::{
    ALL_POSITIONS, TestResult, compare_gradients, compare_slopes, fill, golden, ids,
    largest_difference, lengths, load, relative,
};
use taper_model::{
    ActivationKind, AttentionConfig, AttentionKind, Batch, Builder, LanguageModel, Model,
    ModelConfig, NormPlacement, Objective, Pass, Positions, Sequences, Tied, cost_of,
};

fn small(positions: Positions) -> ModelConfig {
    ModelConfig {
        d_model: 32,
        d_ff: 64,
        heads: 4,
        decoder_layers: 2,
        max_positions: 16,
        positions,
        ..ModelConfig::default().with_dropout(0.0)
    }
}

fn model(config: &ModelConfig) -> LanguageModel {
    LanguageModel::new(config, 37, Builder::seeded(5, &Device::Cpu, DType::F32)).unwrap()
}

/// Returns the smoothed loss and the negative log-likelihood of `batch`, both as means over its
/// tokens, and the gradients. The model has no dropout, so the training pass is deterministic.
fn trained(model: &LanguageModel, batch: &Batch, smoothing: f64) -> (f64, f64, Tensor) {
    let scale = 1.0 / batch.tokens() as f64;
    let pass = Pass::train(1, 1, 0);
    let objective = Objective::smoothed(smoothing);
    let (output, flat) = common::differentiated(model, batch, &objective, scale, pass);
    (output.smoothed_sum * scale, output.nll_sum * scale, flat)
}

fn check(name: &str, config: &ModelConfig) -> TestResult {
    let file = golden(name);
    let model = model(config);
    load(&model, &file);
    let text = Sequences { ids: ids(&file["text_ids"]), lengths: lengths(&file["lengths"]) };
    let pass = Pass::evaluate();
    let logits = model.logits(&model.hidden(&text, &pass)?, &pass)?;
    let error = relative(&logits, &file["logits"]);
    assert!(error < 1e-5, "{name}: logits {error}");

    let batch = Batch::new(vec![text], ids(&file["answers"]));
    let (loss, nll, gradients) = trained(&model, &batch, 0.1);
    for (ours, key) in [(loss, "loss"), (nll, "nll")] {
        let theirs = f64::from(file[key].to_scalar::<f32>()?);
        assert!((ours / theirs - 1.0).abs() < 1e-5, "{name}: {key} {ours} {theirs}");
    }
    compare_gradients(name, &model, &gradients, &file);
    Ok(())
}

/// Compares the model with PyTorch, whose results `scripts/golden/decoders/language_model.py`
/// writes.
#[test]
fn pytorch_agrees() -> TestResult {
    let learned = ModelConfig {
        activation: ActivationKind::Gelu,
        scale_embeddings: false,
        ..small(Positions::Learned)
    };
    check("decoders/language-model-learned", &learned)?;
    let sinusoidal = ModelConfig {
        activation: ActivationKind::Swish,
        norm: NormPlacement::Post,
        tied: Tied::None,
        ..small(Positions::Sinusoidal)
    };
    check("decoders/language-model-sinusoidal", &sinusoidal)
}

/// Compares a Transformer-XL with `scripts/golden/attention/chunked_attention.py`. That program
/// reads segments one after the other, while our model passes all segments of a text through a
/// layer at once.
#[test]
fn a_transformer_xl_is_the_recurrence_of_its_paper() -> TestResult {
    let segments = AttentionConfig {
        kind: AttentionKind::TransformerXl,
        segment: 4,
        memory: 6,
        ..Default::default()
    };
    for (name, norm) in [
        ("attention/transformer-xl-post", NormPlacement::Post),
        ("attention/transformer-xl-pre", NormPlacement::Pre),
    ] {
        let config = ModelConfig {
            activation: ActivationKind::Gelu,
            norm,
            decoder_attention: segments.clone(),
            ..small(Positions::None)
        };
        check(name, &config)?;
    }
    Ok(())
}

/// Compares a Transformer-XL with the implementation of Hugging Face Transformers, which reads
/// segment after segment with the memories that it returned before
/// (`scripts/golden/attention/transformer_xl.py`). They are compared in training, and in an
/// evaluation with a longer memory and `same_length`.
#[test]
fn the_transformer_xl_of_others_agrees() -> TestResult {
    let name = "attention/transformer-xl-library";
    let segments = AttentionConfig {
        kind: AttentionKind::TransformerXl,
        segment: 4,
        memory: 6,
        ..Default::default()
    };
    let config = |decoder_attention| ModelConfig {
        norm: NormPlacement::Post,
        attention_biases: false,
        decoder_attention,
        ..small(Positions::None)
    };
    check(name, &config(segments.clone()))?;
    let longer =
        AttentionConfig { memory: 9, same_length: true, clamp_distance: 7, ..segments.clone() };
    let without = [
        AttentionConfig { same_length: false, ..longer.clone() },
        AttentionConfig { clamp_distance: 0, ..longer.clone() },
    ];
    let file = golden(name);
    let apart = |own: AttentionConfig| -> Result<f64, Box<dyn std::error::Error>> {
        let model = model(&config(own));
        fill(&model, &file);
        let text = Sequences { ids: ids(&file["text_ids"]), lengths: lengths(&file["lengths"]) };
        let pass = Pass::evaluate();
        let logits = model.logits(&model.hidden(&text, &pass)?, &pass)?;
        Ok(relative(&logits, &file["logits.same_length"]))
    };
    let error = apart(longer)?;
    assert!(error < 1e-5, "logits {error}");
    for own in without {
        assert!(apart(own)? > 1e-4, "both keys change something");
    }
    Ok(())
}

/// Checks how far back the context of a token reaches: by one memory for each layer, and not
/// further.
#[test]
fn what_a_transformer_xl_knows_reaches_back_by_one_memory_a_layer() {
    let own = AttentionConfig {
        kind: AttentionKind::TransformerXl,
        segment: 4,
        memory: 4,
        ..Default::default()
    };
    let config = ModelConfig { decoder_attention: own, ..small(Positions::None) };
    let model = model(&config);
    let text: Vec<u32> = (0..24).map(|i| 4 + (i * 7) % 30).collect();
    let whole = logits(&model, &[&text]);
    // The last segment begins at token 20. Through two layers with memories of 4 tokens, it reaches
    // back to token 12.
    for (changed, is_known) in [(12, true), (11, false), (19, true), (0, false)] {
        let mut other = text.clone();
        other[changed] = 35;
        let changed_logits = logits(&model, &[&other]);
        let last = |x: &Tensor| x.narrow(0, 20, 4).unwrap();
        let apart = largest_difference(&last(&changed_logits), &last(&whole));
        assert_eq!(apart > 0.0, is_known, "token {changed}: {apart}");
    }
}

const TEXTS: [&[u32]; 3] = [&[4, 5, 6, 7, 3], &[8], &[9, 10, 11, 3, 1, 30, 5]];

fn logits(model: &LanguageModel, texts: &[&[u32]]) -> Tensor {
    let pass = Pass::evaluate();
    model.logits(&model.hidden(&Sequences::pack(texts), &pass).unwrap(), &pass).unwrap()
}

#[test]
fn a_batch_is_its_texts_and_no_token_sees_a_later_one() {
    for positions in ALL_POSITIONS {
        let model = model(&small(positions));
        let together = logits(&model, &TEXTS);
        assert_eq!(together.dims(), [13, 37]);
        let mut row = 0;
        for text in TEXTS {
            let alone = logits(&model, &[text]);
            let rows = together.narrow(0, row, text.len()).unwrap();
            assert!(largest_difference(&alone, &rows) < 2e-5, "{positions:?}");
            let half = text.len().div_ceil(2);
            let beginning = logits(&model, &[&text[..half]]);
            let rows = alone.narrow(0, 0, half).unwrap();
            assert!(largest_difference(&beginning, &rows) < 2e-5, "{positions:?}");
            row += text.len();
        }
    }
}

#[test]
fn the_cost_is_known_before_the_model_is_made() {
    for positions in ALL_POSITIONS {
        for (tied, biases) in [(Tied::All, true), (Tied::Decoder, false), (Tied::None, true)] {
            let attention_biases = tied == Tied::All;
            let config = ModelConfig { tied, biases, attention_biases, ..small(positions) };
            let made =
                LanguageModel::new(&config, 37, Builder::zeroed(&Device::Cpu, DType::F32)).unwrap();
            let cost = cost_of(&Device::Cpu, |builder| LanguageModel::new(&config, 37, builder));
            assert_eq!(cost.parameters, made.parameters().len() as u64, "{positions:?} {tied:?}");
            assert_eq!(cost.streams.len(), 1);
        }
    }
}

/// Compares the gradients of parameters with finite differences: `(L(p + h d) - L(p - h d)) / 2h`
/// for a parameter p, where L is the loss and d is the direction of the parameter's gradient.
#[test]
fn gradients_are_finite_differences() -> TestResult {
    let answers: Vec<u32> = (0..13).map(|i| 36 - 2 * i).collect();
    let batch = Batch::new(vec![Sequences::pack(&TEXTS)], answers);
    for positions in ALL_POSITIONS {
        let config = ModelConfig { activation: ActivationKind::Gelu, ..small(positions) };
        let model = model(&config);
        let (_, _, gradients) = trained(&model, &batch, 0.1);
        let name = format!("{positions:?}");
        let loss = || trained(&model, &batch, 0.1).0;
        // The exact gradient of a key's bias is zero. The computed gradient is a rounding error,
        // whose norm is below `least`, the second of these numbers. This parameter is therefore
        // left out.
        compare_slopes(
            &name,
            model.parameters().parameters(),
            &gradients,
            (2e-2, 1e-4, 2e-2),
            loss,
        );
    }
    Ok(())
}

#[test]
fn a_batch_of_another_model_is_refused() {
    let model = model(&small(Positions::Learned));
    let says = |batch: Batch| {
        model
            .loss(&batch, &Objective::smoothed(0.0), 1.0, &Pass::evaluate())
            .unwrap_err()
            .to_string()
    };
    let text = || Sequences::pack(&[&[4, 5, 6]]);
    let pairs = says(Batch::new(vec![text(), text()], vec![5, 6, 7]));
    assert!(pairs.contains("reads 1 stream(s), text, but the batch has 2"), "{pairs}");
    let long = Sequences::pack(&[[4; 17]]);
    assert!(says(Batch::new(vec![long], vec![4; 17])).contains("max_positions = 16"));
}
