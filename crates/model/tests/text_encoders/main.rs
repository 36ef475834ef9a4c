//! Tests of encoders of texts. The encoders are compared with BERT of Hugging Face Transformers
//! (golden files of `scripts/golden/encoders/bert.py`), and their properties are checked with
//! random numbers.

mod classes;
#[path = "../common/mod.rs"]
mod common;
mod spans;

use candle_core::{DType, Device, Tensor};
use common::{
    TestResult, compare_slopes, golden, gradient_of, ids, largest_difference, lengths, load,
    relative, trained,
};
use std::collections::HashMap;
use taper_model::{
    ActivationKind, Batch, Builder, MaskedLanguageModel, Model, ModelConfig, NormPlacement,
    Objective, Pass, Positions, Sequences, SpanExtractor, TextClassifier, Tied, TokenTagger,
    cost_of,
};

/// Configuration of the golden files. Their model is like BERT.
fn small() -> ModelConfig {
    ModelConfig {
        d_model: 16,
        d_ff: 24,
        heads: 4,
        encoder_layers: 2,
        activation: ActivationKind::Gelu,
        norm: NormPlacement::Post,
        norm_epsilon: 1e-12,
        positions: Positions::Learned,
        max_positions: 16,
        scale_embeddings: false,
        ..ModelConfig::default().with_dropout(0.0)
    }
}

fn masked(config: &ModelConfig, next_sentence: bool) -> MaskedLanguageModel {
    MaskedLanguageModel::new(
        config,
        41,
        next_sentence,
        Builder::seeded(5, &Device::Cpu, DType::F32),
    )
    .unwrap()
}

fn check_training(model: &impl Model, file: &HashMap<String, Tensor>, batch: &Batch) -> TestResult {
    for composed in [false, true] {
        let (loss, gradients) = trained(model, batch, composed);
        let theirs = f64::from(file["loss"].to_scalar::<f32>()?);
        assert!((loss / theirs - 1.0).abs() < 1e-5, "loss {loss} {theirs}");
        for parameter in model.parameters().parameters() {
            let ours = gradient_of(&gradients, parameter);
            let theirs = &file[&format!("grad.{}", parameter.name())];
            // A constant that is added to the logits of all tokens does not change a softmax over
            // them. So the gradients of the bias of spans, and of the bias of the norm before it,
            // are rounding errors.
            let zero = theirs.zeros_like()?;
            if largest_difference(theirs, &zero) < 1e-7 {
                let largest = largest_difference(&ours, &zero);
                assert!(largest < 1e-6, "gradient of {}: {largest}", parameter.name());
                continue;
            }
            let error = relative(&ours, theirs);
            assert!(error < 1e-5, "gradient of {}: {error} ({composed})", parameter.name());
        }
    }
    Ok(())
}

#[test]
fn transformers_agrees_on_pretraining() -> TestResult {
    let file = golden("encoders/bert-pretraining");
    let model = masked(&small(), true);
    load(&model, &file);
    let lengths = lengths(&file["lengths"]);
    let text = Sequences { ids: ids(&file["text_ids"]), lengths: lengths.clone() };
    let (segments, asked) = (ids(&file["segments"]), ids(&file["asked"]));
    let pass = Pass::evaluate();
    let hidden = model.hidden(&text, &segments, &pass)?;
    let rows = hidden.index_select(&file["asked"], 0)?;
    let error = relative(&model.logits(&rows, &pass)?, &file["logits"]);
    assert!(error < 1e-5, "logits {error}");
    let next = model.next_sentence_logits(&hidden, &lengths, &pass)?.expect("a head");
    let error = relative(&next, &file["next_sentence_logits"]);
    assert!(error < 1e-5, "logits of the next sentence {error}");
    let follows = Sequences { ids: ids(&file["follows"]), lengths: vec![1; lengths.len()] };
    let segments = Sequences { ids: segments, lengths };
    let batch = Batch {
        asked: Some(asked),
        ..Batch::new(vec![follows, segments, text], ids(&file["answers"]))
    };
    check_training(&model, &file, &batch)
}

fn classes_of(text: Sequences, answers: Vec<u32>) -> Batch {
    let mut first = 0;
    let row = |&length: &usize| {
        first += length as u32;
        first - length as u32
    };
    let asked = text.lengths.iter().map(row).collect();
    let segments = first_segment(&text);
    Batch { asked: Some(asked), ..Batch::new(vec![segments, text], answers) }
}

fn first_segment(text: &Sequences) -> Sequences {
    Sequences { ids: vec![0; text.ids.len()], lengths: text.lengths.clone() }
}

/// First and last token of the answer in each of [`TEXTS`]. The second text has no answer.
const SPANS: &[[u32; 2]] = &[[2, 3], [0, 0], [4, 4]];
const TEXTS: [&[u32]; 3] = [&[4, 5, 6, 7, 3], &[8, 2], &[9, 10, 11, 3, 1, 30, 5]];

/// Makes a batch of [`TEXTS`], in which some tokens of each text are to be predicted.
fn batch() -> Batch {
    let text = Sequences::pack(&TEXTS);
    let segments = first_segment(&text);
    Batch { asked: Some(vec![1, 6, 8, 12]), ..Batch::new(vec![segments, text], vec![7, 9, 11, 13]) }
}

#[test]
fn a_batch_is_its_texts_and_each_token_sees_both_sides() -> TestResult {
    for positions in common::ALL_POSITIONS {
        let model = masked(&ModelConfig { positions, ..small() }, false);
        let hidden = |texts: &[&[u32]]| {
            let text = Sequences::pack(texts);
            model.hidden(&text, &vec![0; text.ids.len()], &Pass::evaluate()).unwrap()
        };
        let together = hidden(&TEXTS);
        let mut row = 0;
        for text in TEXTS {
            let rows = together.narrow(0, row, text.len())?;
            assert!(largest_difference(&hidden(&[text]), &rows) < 2e-5, "{positions:?}");
            row += text.len();
        }
        let other = hidden(&[&[4, 5, 6, 7, 9]]).narrow(0, 0, 1)?;
        assert!(largest_difference(&other, &together.narrow(0, 0, 1)?) > 1e-4, "{positions:?}");
    }
    Ok(())
}

/// Compares the gradients of parameters with finite differences: `(L(p + h d) - L(p - h d)) / 2h`
/// for a parameter p, where L is the loss and d is the direction of the parameter's gradient.
#[test]
fn gradients_are_finite_differences() -> TestResult {
    for pooling in classes::POOLINGS {
        let batch = classes_of(Sequences::pack(&TEXTS), vec![1, 0, 2]);
        slopes(&classes::classifier(&ModelConfig { pooling, ..small() }), &batch)?;
    }
    slopes(&spans::extractor(&small()), &spans::batch(&TEXTS, SPANS))?;
    let tags = Batch { answers: vec![1, 0, 2, 1], ..batch() };
    slopes(
        &TokenTagger::new(&small(), 41, 3, Builder::seeded(5, &Device::Cpu, DType::F32))?,
        &tags,
    )?;
    let pre = ModelConfig { norm: NormPlacement::Pre, tied: Tied::None, ..small() };
    slopes(&masked(&pre, false), &batch())
}

fn slopes(model: &impl Model, batch: &Batch) -> TestResult {
    let (_, gradients) = trained(model, batch, false);
    // A constant that is added to the logits of all tokens does not change a softmax over the
    // tokens. The gradient of the bias of spans is therefore zero, up to rounding.
    let (of_spans, others): (Vec<_>, Vec<_>) =
        model.parameters().parameters().iter().partition(|one| one.name() == "span.bias");
    for bias in of_spans {
        let norm = gradient_of(&gradients, bias).sqr()?.sum_all()?.to_scalar::<f32>()?.sqrt();
        assert!(norm < 1e-6, "{norm}");
    }
    let loss = || trained(model, batch, false).0;
    compare_slopes("", others, &gradients, (1e-2, 1e-3, 3e-2), loss);
    Ok(())
}

#[test]
fn the_cost_is_known_before_the_model_is_made() -> TestResult {
    for (tied, biases, next) in [(Tied::All, true, true), (Tied::None, false, false)] {
        for positions in common::ALL_POSITIONS {
            let config = ModelConfig { tied, biases, positions, ..small() };
            let made = masked(&config, next);
            let cost = cost_of(&Device::Cpu, |builder| {
                MaskedLanguageModel::new(&config, 41, next, builder)
            });
            assert_eq!(cost.parameters, made.parameters().len() as u64, "{positions:?}");
            let outline = MaskedLanguageModel::new(&config, 41, next, Builder::outline())?;
            assert_eq!(outline.parameters().len(), made.parameters().len());
            for pooling in classes::POOLINGS {
                let config = ModelConfig { pooling, ..config.clone() };
                let zeroed = Builder::zeroed(&Device::Cpu, DType::F32);
                let made = TextClassifier::new(&config, 41, 5, zeroed)?;
                let cost =
                    cost_of(&Device::Cpu, |builder| TextClassifier::new(&config, 41, 5, builder));
                assert_eq!(cost.parameters, made.parameters().len() as u64, "{positions:?}");
            }
            let made = SpanExtractor::new(&config, 41, Builder::zeroed(&Device::Cpu, DType::F32))?;
            let cost = cost_of(&Device::Cpu, |builder| SpanExtractor::new(&config, 41, builder));
            assert_eq!(cost.parameters, made.parameters().len() as u64, "{positions:?}");
            let made = TokenTagger::new(&config, 41, 5, Builder::zeroed(&Device::Cpu, DType::F32))?;
            let cost = cost_of(&Device::Cpu, |builder| TokenTagger::new(&config, 41, 5, builder));
            assert_eq!(cost.parameters, made.parameters().len() as u64, "{positions:?}");
        }
    }
    Ok(())
}

#[test]
fn a_batch_of_another_model_is_refused() {
    let says = |model: &dyn Fn(&Batch) -> String, change: &dyn Fn(&mut Batch)| {
        let mut batch = batch();
        change(&mut batch);
        model(&batch)
    };
    let plain = masked(&small(), false);
    let of_plain = |batch: &Batch| {
        let loss = plain.loss(batch, &Objective::default(), 1.0, &Pass::evaluate());
        loss.err().map(|error| error.to_string()).unwrap_or_default()
    };
    assert_eq!(says(&of_plain, &|_| {}), "");
    let two = says(&of_plain, &|batch| drop(batch.streams.remove(0)));
    assert!(two.contains("segments and text"), "{two}");
    let longer = says(&of_plain, &|batch| batch.streams[0] = Sequences::pack(&[[0; 4]; 3]));
    assert!(longer.contains("not as long"), "{longer}");
    let pairs = masked(&small(), true);
    let of_pairs = |batch: &Batch| {
        let loss = pairs.loss(batch, &Objective::default(), 1.0, &Pass::evaluate());
        loss.err().map(|error| error.to_string()).unwrap_or_default()
    };
    let none = says(&of_pairs, &|_| {});
    assert!(none.contains("3 stream(s), follows and segments and text"), "{none}");
    let text = Sequences::pack(&[[4, 5]]);
    let unasked = Batch::new(vec![first_segment(&text), text], vec![1, 2]);
    let classifier = classes::classifier(&small());
    let error = classifier.loss(&unasked, &Objective::default(), 1.0, &Pass::evaluate());
    assert!(error.unwrap_err().to_string().contains("first token of each text"));
    let one = TextClassifier::new(&small(), 41, 1, Builder::seeded(5, &Device::Cpu, DType::F32));
    assert!(one.unwrap_err().to_string().contains("at least two classes"));
}
