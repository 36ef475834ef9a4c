//! Tests of classifiers of whole texts and of tokens.

use super::*;
use taper_model::Pooling;

pub(crate) const POOLINGS: [Pooling; 2] = [Pooling::ClassToken, Pooling::Mean];

/// A classifier of texts with three classes.
pub(crate) fn classifier(config: &ModelConfig) -> TextClassifier {
    TextClassifier::new(config, 41, 3, Builder::seeded(5, &Device::Cpu, DType::F32)).unwrap()
}

#[test]
fn transformers_agrees_on_classification() -> TestResult {
    for (name, pooling) in [
        ("encoders/bert-classifier", Pooling::ClassToken),
        ("encoders/bert-mean-classifier", Pooling::Mean),
    ] {
        let file = golden(name);
        let model = classifier(&ModelConfig { pooling, ..small() });
        load(&model, &file);
        let text = Sequences { ids: ids(&file["text_ids"]), lengths: lengths(&file["lengths"]) };
        let error = relative(&model.logits(&first_segment(&text), &text)?, &file["logits"]);
        assert!(error < 1e-5, "{name}: logits {error}");
        check_training(&model, &file, &classes_of(text, ids(&file["answers"])))?;
    }
    Ok(())
}

#[test]
fn transformers_agrees_on_tags() -> TestResult {
    let file = golden("encoders/bert-tagger");
    let model = TokenTagger::new(&small(), 41, 3, Builder::seeded(5, &Device::Cpu, DType::F32))?;
    load(&model, &file);
    let text = Sequences { ids: ids(&file["text_ids"]), lengths: lengths(&file["lengths"]) };
    let (segments, asked) = (first_segment(&text), ids(&file["asked"]));
    let error = relative(&model.logits(&segments, &text, &asked)?, &file["logits"]);
    assert!(error < 1e-5, "logits {error}");
    let refused = model.logits(&segments, &text, &[text.ids.len() as u32]);
    assert!(refused.unwrap_err().to_string().contains("to tag among"));
    let answers = ids(&file["answers"]);
    let batch = Batch { asked: Some(asked), ..Batch::new(vec![segments, text], answers) };
    check_training(&model, &file, &batch)
}

#[test]
fn a_batch_is_its_texts_whatever_its_classes_are_told_from() -> TestResult {
    for pooling in POOLINGS {
        let model = classifier(&ModelConfig { pooling, ..small() });
        let logits_of = |texts: &[&[u32]]| {
            let text = Sequences::pack(texts);
            model.logits(&first_segment(&text), &text).unwrap()
        };
        let together = logits_of(&TEXTS);
        for (number, text) in TEXTS.iter().enumerate() {
            let row = together.narrow(0, number, 1)?;
            assert!(largest_difference(&logits_of(&[text]), &row) < 2e-5, "{pooling:?}");
        }
        let text = Sequences::pack::<&[u32]>(&[&[], &[4, 5]]);
        let error = model.logits(&first_segment(&text), &text).unwrap_err().to_string();
        assert!(error.contains("a text is empty"), "{pooling:?}: {error}");
        let batch = classes_of(text, vec![1, 2]);
        let loss = model.loss(&batch, &Objective::default(), 1.0, &Pass::evaluate());
        assert!(loss.unwrap_err().to_string().contains("a text is empty"), "{pooling:?}");
    }
    Ok(())
}

/// Checks that each token of a text has the same weight in the mean.
#[test]
fn a_mean_does_not_know_the_order_of_its_tokens() -> TestResult {
    let mean = ModelConfig { pooling: Pooling::Mean, positions: Positions::None, ..small() };
    let model = classifier(&mean);
    let logits_of = |ids: &[u32]| {
        let text = Sequences::pack(&[ids]);
        model.logits(&first_segment(&text), &text).unwrap()
    };
    let turned: Vec<u32> = TEXTS[2].iter().rev().copied().collect();
    assert!(largest_difference(&logits_of(TEXTS[2]), &logits_of(&turned)) < 1e-5);
    Ok(())
}

/// Checks activations in bf16 that meet parameters in f32, as they do with bf16 on a GPU. The loss
/// and the gradients must be those in f32, up to rounding.
#[test]
fn activations_in_half_precision_meet_parameters() -> TestResult {
    for pooling in POOLINGS {
        let config = ModelConfig { pooling, ..small() };
        let half = Builder::seeded(5, &Device::Cpu, DType::BF16);
        let half = TextClassifier::new(&config, 41, 3, half)?;
        let text = Sequences::pack(&TEXTS);
        let answers = (0..TEXTS.len() as u32).map(|text| text % 3).collect();
        let batch = classes_of(text, answers);
        let (exact, gradient) = trained(&classifier(&config), &batch, true);
        let pass = Pass::train(1, 1, 0).composed();
        let scale = 1.0 / batch.tokens() as f64;
        let (output, flat) =
            common::differentiated(&half, &batch, &Objective::smoothed(0.0), scale, pass);
        let loss = output.objective_sum * scale;
        assert!((loss / exact - 1.0).abs() < 0.03, "{pooling:?}: {loss} and {exact}");
        let error = relative(&flat, &gradient);
        assert!(error < 0.1, "{pooling:?}: gradients {error}");
    }
    Ok(())
}
