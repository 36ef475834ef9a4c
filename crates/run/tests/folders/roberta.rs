//! RoBERTas that predict hidden tokens and that label texts agree with Transformers. The golden
//! files are made by `scripts/golden/encoders/roberta_folders.py`.

use candle_core::Tensor;
use serde_json::json;
use taper_data::rows_of;
use taper_model::{Batch, MaskedLanguageModel, Pass, Sequences, TextClassifier};
use taper_run::folders::import;
use taper_run::prediction::predict;
use taper_run::{LoadSettings, LoadedRun, RunEvent, RunFolder};

use super::{
    CONFIG, WEIGHTS, changed, check_round_trip, golden, imported, refusal, relative, rewrite, rows,
    set, tensors, trained,
};

fn ids(tensor: &Tensor) -> Vec<u32> {
    tensor.to_vec1().unwrap()
}

/// Segments of the tokens of `text`, all of which are in segment 0.
fn segments(text: &Sequences) -> Sequences {
    Sequences { ids: vec![0; text.ids.len()], lengths: text.lengths.clone() }
}

#[test]
fn transformers_agrees_on_hidden_tokens_and_a_round_trip_changes_no_bit() {
    let source = golden("roberta");
    let folder = tempfile::tempdir().unwrap();
    let run = imported::<MaskedLanguageModel>(&source, &folder.path().join("run")).unwrap();
    let model = &run.config.model;
    assert_eq!((model.max_positions, model.position_offset, model.segments), (26, 2, 1));
    let expected = tensors(source.join("expected.safetensors"));
    let text = Sequences::pack(&rows(&expected["ids"], &expected["lengths"]));
    let pass = Pass::evaluate();
    // The model has a single segment, so it ignores the segments that are given.
    let ones = vec![1; text.ids.len()];
    let hidden = run.model.hidden(&text, &ones, &pass).unwrap();
    let asked = hidden.index_select(&expected["asked"], 0).unwrap();
    let error = relative(&run.model.logits(&asked, &pass).unwrap(), &expected["logits"]);
    assert!(error < 1e-5, "logits {error}");
    let batch = Batch {
        asked: Some(ids(&expected["asked"])),
        ..Batch::new(vec![segments(&text), text], ids(&expected["answers"]))
    };
    let (found, gradients) = trained(&run.model, &batch);
    let loss = f64::from(expected["loss"].to_scalar::<f32>().unwrap());
    assert!((found / loss - 1.0).abs() < 1e-5, "loss");
    check_round_trip(&run, &source, (&[WEIGHTS, "tokenizer.json"], &[CONFIG]), &gradients);
}

#[test]
fn transformers_agrees_on_classification_of_texts_and_of_pairs() {
    let source = golden("roberta-classifier");
    let folder = tempfile::tempdir().unwrap();
    let run = imported::<TextClassifier>(&source, &folder.path().join("run")).unwrap();
    assert_eq!(run.config.data.labelled.labels, ["calm", "stormy", "unknown"]);
    let expected = tensors(source.join("expected.safetensors"));
    let rows = rows(&expected["ids"], &expected["lengths"]);
    let text = Sequences::pack(&rows);
    let logits = run.model.logits(&segments(&text), &text).unwrap();
    let error = relative(&logits, &expected["logits"]);
    assert!(error < 1e-5, "logits {error}");

    // In a line, a tab divides the texts of a pair. In the token sequence, two separators do.
    let lines = [
        "The seagulls sail on.",
        "Nothing is lost!",
        "Sailing, sailing; and 7 ships",
        "Café unlost",
        "Nothing is lost!\tThe sail",
    ]
    .map(str::to_owned);
    let tokenizer = run.tokenizers.target();
    let ours = rows_of(tokenizer, &lines, &run.config.data.labelled).unwrap();
    let ours: Vec<_> = ours.into_iter().map(|row| row.ids).collect();
    assert_eq!(ours, rows);
    let found = predict(&run, &lines, |_| {}).unwrap();
    let logits = expected["logits"].to_vec2::<f32>().unwrap();
    for (prediction, logits) in found.into_iter().map(Result::unwrap).zip(logits) {
        let sum: f64 = logits.iter().map(|&logit| f64::from(logit).exp()).sum();
        for (&ours, &logit) in prediction.probabilities.iter().zip(&logits) {
            assert!((ours - f64::from(logit).exp() / sum).abs() < 1e-5);
        }
    }

    let mut first = 0;
    let asked = text.lengths.iter().map(|&length| {
        first += length as u32;
        first - length as u32
    });
    let batch = Batch {
        asked: Some(asked.collect()),
        ..Batch::new(vec![segments(&text), text.clone()], ids(&expected["answers"]))
    };
    let (found, gradients) = trained(&run.model, &batch);
    let loss = f64::from(expected["loss"].to_scalar::<f32>().unwrap());
    assert!((found / loss - 1.0).abs() < 1e-5, "loss");
    check_round_trip(&run, &source, (&[WEIGHTS, "tokenizer.json"], &[CONFIG]), &gradients);
}

#[test]
fn rows_that_differ_are_told_and_other_models_refused() {
    let source = golden("roberta-classifier");
    let folder = tempfile::tempdir().unwrap();
    let notices = |name: &str, keys: &[(&str, serde_json::Value)], rows: usize| {
        let changed = changed(&source, &folder.path().join(name), &|path| {
            for (key, value) in keys {
                set(path.join(CONFIG), key, value);
            }
            rewrite(path, |weights| {
                let name = "roberta.embeddings.token_type_embeddings.weight";
                let table = weights[name].repeat((rows, 1)).unwrap();
                weights.insert(name.to_owned(), table);
            });
        });
        let mut said = Vec::new();
        import(
            &changed,
            &RunFolder::new(&folder.path().join(name).join("run")),
            &mut |event: &RunEvent<'_>| {
                if let RunEvent::Notice(notice) = event {
                    said.push(notice.to_string());
                }
                Ok(())
            },
        )
        .unwrap();
        said
    };
    assert!(notices("one", &[], 1).is_empty());
    // Transformers gives segment 0 to both texts of a pair, even if the model has two segments.
    assert!(notices("two", &[("type_vocab_size", json!(2))], 2).is_empty());
    let run = folder.path().join("two").join("run");
    let run: LoadedRun<TextClassifier> = LoadedRun::open(&run, &LoadSettings::default()).unwrap();
    let lines = ["Nothing is lost!\tThe sail".to_owned()];
    let rows = rows_of(run.tokenizers.target(), &lines, &run.config.data.labelled).unwrap();
    assert!(rows[0].segments().all(|segment| segment == 0));

    for (key, value, said) in [
        ("max_position_embeddings", json!(1), "max_position_embeddings is 1"),
        ("pad_token_id", json!(-3), "pad_token_id is -3"),
        ("type_vocab_size", json!(3), "model.segments"),
        ("is_decoder", json!(true), "is_decoder is true"),
    ] {
        let error = refusal::<TextClassifier>(&source, &|path| set(path.join(CONFIG), key, &value));
        assert!(error.contains(said), "{key}: {error}");
    }
}
