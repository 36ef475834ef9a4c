//! Tests of models that answer questions by spans of tokens.

use super::*;

pub(crate) fn extractor(config: &ModelConfig) -> SpanExtractor {
    SpanExtractor::new(config, 41, Builder::seeded(5, &Device::Cpu, DType::F32)).unwrap()
}

/// Makes a batch of `texts`. Each of `spans` has the first and the last token of the answer in one
/// text.
pub(crate) fn batch(texts: &[&[u32]], spans: &[[u32; 2]]) -> Batch {
    let text = Sequences::pack(texts);
    let once = classes_of(text, spans.concat());
    let asked = once.asked.unwrap().into_iter().flat_map(|row| [row; 2]).collect();
    Batch { asked: Some(asked), ..once }
}

#[test]
fn transformers_agrees_on_spans() -> TestResult {
    let file = golden("encoders/bert-spans");
    let model = extractor(&small());
    load(&model, &file);
    let text = Sequences { ids: ids(&file["text_ids"]), lengths: lengths(&file["lengths"]) };
    let segments = Sequences { ids: ids(&file["segments"]), lengths: text.lengths.clone() };
    let error = relative(&model.logits(&segments, &text)?, &file["logits"]);
    assert!(error < 1e-5, "logits {error}");
    let asked = Some(ids(&file["asked"]));
    let batch = Batch { asked, ..Batch::new(vec![segments, text], ids(&file["answers"])) };
    check_training(&model, &file, &batch)
}

#[test]
fn a_batch_is_its_texts_also_for_spans() -> TestResult {
    let model = extractor(&small());
    let objective = Objective::smoothed(0.1);
    let of = |texts: &[&[u32]], spans: &[[u32; 2]]| {
        let batch = batch(texts, spans);
        let output = model.loss(&batch, &objective, 1.0, &Pass::evaluate()).unwrap();
        let [segments, text] = batch.read(["segments", "text"]).unwrap();
        (model.logits(segments, text).unwrap(), output)
    };
    let (logits, together) = of(&TEXTS, SPANS);
    let (mut row, mut sums, mut correct) = (0, [0.0; 3], 0);
    for (text, &span) in TEXTS.iter().zip(SPANS) {
        let (alone, output) = of(&[text], &[span]);
        let rows = logits.narrow(0, row, text.len())?;
        assert!(largest_difference(&alone, &rows) < 2e-5);
        row += text.len();
        let found = [output.smoothed_sum, output.nll_sum, output.objective_sum];
        sums.iter_mut().zip(found).for_each(|(sum, one)| *sum += one);
        correct += output.correct;
        // The two parts of the loss are computed by hand here: the negative log-likelihood, and the
        // part of label smoothing.
        let columns = alone.t()?.to_vec2::<f32>()?;
        let (mut nll, mut even) = (0.0, 0.0);
        for (column, &place) in columns.iter().zip(&span) {
            let total = column.iter().map(|&x| f64::from(x).exp()).sum::<f64>().ln();
            nll += total - f64::from(column[place as usize]);
            even += column.iter().map(|&x| total - f64::from(x)).sum::<f64>() / text.len() as f64;
        }
        assert!((output.nll_sum - nll).abs() < 1e-5 * nll);
        let smoothed = 0.9 * nll + 0.1 * even;
        assert!((output.smoothed_sum - smoothed).abs() < 1e-5 * smoothed);
    }
    let found = [together.smoothed_sum, together.nll_sum, together.objective_sum];
    for (sum, found) in sums.iter().zip(found) {
        assert!((found / sum - 1.0).abs() < 1e-5, "{found} {sum}");
    }
    assert_eq!((together.correct, together.tokens), (correct, 6));
    Ok(())
}

#[test]
fn two_passes_are_one_without_dropout_and_differ_with_it() -> TestResult {
    let loss_of = |dropout: f64, r_drop: f64| {
        let model = extractor(&ModelConfig { residual_dropout: dropout, ..small() });
        let objective = Objective { r_drop, ..Objective::smoothed(0.1) };
        let batch = batch(&TEXTS, SPANS);
        common::differentiated(&model, &batch, &objective, 1.0, Pass::train(3, 1, 0))
    };
    let ((once, gradients), (twice, twice_gradients)) = (loss_of(0.0, 0.0), loss_of(0.0, 2.0));
    assert!(relative(&twice_gradients, &gradients) < 1e-5);
    assert!((twice.objective_sum / once.objective_sum - 1.0).abs() < 1e-5);
    assert!(twice.divergence_sum.abs() < 1e-6 && twice.tokens == once.tokens);
    let (dropped, _) = loss_of(0.3, 2.0);
    assert!(dropped.divergence_sum > 1e-3);
    let expected = dropped.smoothed_sum + 2.0 * dropped.divergence_sum;
    assert!((dropped.objective_sum / expected - 1.0).abs() < 1e-6);
    let loss = f64::from(dropped.loss.to_scalar::<f32>()?);
    assert!((loss / dropped.objective_sum - 1.0).abs() < 1e-5);
    Ok(())
}

#[test]
fn spans_that_are_none_are_refused() {
    let model = extractor(&small());
    let says = |change: &dyn Fn(&mut Batch)| {
        let mut batch = batch(&TEXTS, SPANS);
        change(&mut batch);
        let loss = model.loss(&batch, &Objective::default(), 1.0, &Pass::evaluate());
        loss.unwrap_err().to_string()
    };
    let error = says(&|batch| batch.answers[3] = 2);
    assert!(error.contains("token 2 of a text of 2, counted from 0"), "{error}");
    let error = says(&|batch| batch.asked = Some(vec![0, 5, 7, 7, 7, 7]));
    assert!(error.contains("first token of each text, twice"), "{error}");
    let error = says(&|batch| batch.streams[0].lengths.swap(0, 1));
    assert!(error.contains("not as long"), "{error}");
    let empty = batch(&[&[], &[4, 5]], &[[0, 0], [1, 1]]);
    let loss = model.loss(&empty, &Objective::default(), 1.0, &Pass::evaluate());
    let error = loss.unwrap_err().to_string();
    assert!(error.contains("token 0 of a text of 0"), "{error}");
}
