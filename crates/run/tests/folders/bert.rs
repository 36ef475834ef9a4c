//! BERTs for pretraining, classification, tagging and questions agree with Transformers. The golden
//! files are made by `scripts/golden/encoders/bert_folders.py`.

use std::path::{Path, PathBuf};

use candle_core::{Device, Tensor};
use serde_json::json;
use taper_data::{SpelledSpecial, Task};
use taper_model::{
    Batch, MaskedLanguageModel, Pass, Pooling, Sequences, SpanExtractor, TextClassifier, Tied,
    TokenTagger,
};
use taper_run::folders::{export, import};
use taper_run::prediction::{QuestionInContext, SpanAnswer, predict, predict_answers};

use taper_run::{LoadSettings, LoadedRun, RunEvent, RunFolder};

use super::{
    CONFIG, WEIGHTS, changed, check_round_trip, imported, refusal, relative, rewrite, rows, set,
    tensors, trained,
};

fn golden() -> PathBuf {
    super::golden("bert")
}

fn ids(tensor: &Tensor) -> Vec<u32> {
    tensor.to_vec1().unwrap()
}

#[test]
fn transformers_agrees_on_pretraining_and_a_round_trip_changes_no_bit() {
    let folder = tempfile::tempdir().unwrap();
    let run = imported::<MaskedLanguageModel>(&golden(), &folder.path().join("run")).unwrap();
    assert_eq!(run.config.task, Task::MaskedLanguageModel);
    assert!(run.config.data.masked.next_sentence);
    let expected = tensors(golden().join("expected.safetensors"));
    let text = Sequences::pack(&rows(&expected["ids"], &expected["lengths"]));
    let segments = ids(&expected["segments"]);
    let pass = Pass::evaluate();
    let hidden = run.model.hidden(&text, &segments, &pass).unwrap();
    let asked = hidden.index_select(&expected["asked"], 0).unwrap();
    let error = relative(&run.model.logits(&asked, &pass).unwrap(), &expected["logits"]);
    assert!(error < 1e-5, "logits {error}");
    let pairs = run.model.next_sentence_logits(&hidden, &text.lengths, &pass).unwrap().unwrap();
    let error = relative(&pairs, &expected["pairs"]);
    assert!(error < 1e-5, "logits of the next sentence {error}");

    let follows = ids(&expected["follows"]);
    let follows = Sequences { lengths: vec![1; follows.len()], ids: follows };
    let segments = Sequences { ids: segments, lengths: text.lengths.clone() };
    let batch = Batch {
        asked: Some(ids(&expected["asked"])),
        ..Batch::new(vec![follows, segments, text], ids(&expected["answers"]))
    };
    let (found, gradients) = trained(&run.model, &batch);
    let loss = f64::from(expected["loss"].to_scalar::<f32>().unwrap());
    assert!((found / loss - 1.0).abs() < 1e-5, "loss");
    let files: (&[_], &[_]) = (&[WEIGHTS, "tokenizer.json"], &[CONFIG]);
    check_round_trip(&run, &golden(), files, &gradients);
}

#[test]
fn transformers_agrees_on_classification_and_texts_get_its_labels() {
    let source = super::golden("bert-classifier");
    let folder = tempfile::tempdir().unwrap();
    let run = imported::<TextClassifier>(&source, &folder.path().join("run")).unwrap();
    assert_eq!(run.config.data.labelled.labels, ["calm", "stormy", "unknown"]);
    let expected = tensors(source.join("expected.safetensors"));
    let rows = rows(&expected["ids"], &expected["lengths"]);
    let text = Sequences::pack(&rows);
    let segments = Sequences { ids: ids(&expected["segments"]), lengths: text.lengths.clone() };
    let logits = run.model.logits(&segments, &text).unwrap();
    let error = relative(&logits, &expected["logits"]);
    assert!(error < 1e-5, "logits {error}");

    // The folder's tokenizer reads the spellings of special tokens in texts as text, unless it is
    // told otherwise.
    let texts =
        ["The seagulls sail on.", "Nothing is lost!", "Sailing, sailing; [MASK] and 7 ships"];
    let tokenizer = run.tokenizers.target();
    assert_eq!(rows[0][1..rows[0].len() - 1], tokenizer.encode(texts[0]).unwrap());
    let mask = 4;
    assert!(rows[2].contains(&mask) && !tokenizer.encode(texts[2]).unwrap().contains(&mask));
    let reads = tokenizer.with_spelled(SpelledSpecial::Read);
    assert_eq!(rows[2][1..rows[2].len() - 1], reads.encode(texts[2]).unwrap());
    let texts: Vec<String> = texts[..2].iter().map(|&text| text.to_owned()).collect();
    // The last line is a pair of texts, divided by a tab.
    let texts = [texts, vec!["Nothing is lost!\tCafé unlost".to_owned()]].concat();
    let found: Vec<_> =
        predict(&run, &texts, |_| {}).unwrap().into_iter().map(Result::unwrap).collect();
    let logits = expected["logits"].to_vec2::<f32>().unwrap();
    let logits = [&logits[..2], &logits[4..]].concat();
    for (prediction, logits) in found.iter().zip(logits) {
        let sum: f64 = logits.iter().map(|&logit| f64::from(logit).exp()).sum();
        for (&ours, &logit) in prediction.probabilities.iter().zip(&logits) {
            assert!((ours - f64::from(logit).exp() / sum).abs() < 1e-5);
        }
    }

    let answers = ids(&expected["answers"]);
    let mut first = 0;
    let asked = text.lengths.iter().map(|&length| {
        first += length as u32;
        first - length as u32
    });
    let batch =
        Batch { asked: Some(asked.collect()), ..Batch::new(vec![segments, text.clone()], answers) };
    let (found, gradients) = trained(&run.model, &batch);
    let loss = f64::from(expected["loss"].to_scalar::<f32>().unwrap());
    assert!((found / loss - 1.0).abs() < 1e-5, "loss");
    let files: (&[_], &[_]) = (&[WEIGHTS, "tokenizer.json"], &[CONFIG]);
    check_round_trip(&run, &source, files, &gradients);
}

#[test]
fn transformers_agrees_on_tags_and_a_round_trip_changes_no_bit() {
    let source = super::golden("bert-tags");
    let folder = tempfile::tempdir().unwrap();
    let run = imported::<TokenTagger>(&source, &folder.path().join("run")).unwrap();
    assert_eq!(run.config.data.labelled.labels, ["O", "B-SEA", "I-SEA"]);
    let expected = tensors(source.join("expected.safetensors"));
    let text = Sequences::pack(&rows(&expected["ids"], &expected["lengths"]));
    let segments = Sequences { ids: ids(&expected["segments"]), lengths: text.lengths.clone() };
    let asked = ids(&expected["asked"]);
    let logits = run.model.logits(&segments, &text, &asked).unwrap();
    let error = relative(&logits, &expected["logits"]);
    assert!(error < 1e-5, "logits {error}");
    let batch =
        Batch { asked: Some(asked), ..Batch::new(vec![segments, text], ids(&expected["answers"])) };
    let (found, gradients) = trained(&run.model, &batch);
    let loss = f64::from(expected["loss"].to_scalar::<f32>().unwrap());
    assert!((found / loss - 1.0).abs() < 1e-5, "loss");
    let files: (&[_], &[_]) = (&[WEIGHTS, "tokenizer.json"], &[CONFIG]);
    check_round_trip(&run, &source, files, &gradients);
}

#[test]
fn a_bert_without_a_head_is_one_to_begin_with() {
    let folder = tempfile::tempdir().unwrap();
    let source = changed(&golden(), folder.path(), &|path| {
        set(path.join(CONFIG), "architectures", &json!(["BertModel"]));
        rewrite(path, |weights| {
            let body = weights.iter().filter_map(|(name, tensor)| {
                Some((name.strip_prefix("bert.")?.to_owned(), tensor.clone()))
            });
            *weights = body.collect();
        });
    });
    let run = folder.path().join("run");
    let mut said = Vec::new();
    let mut observer = |event: &RunEvent<'_>| {
        if let RunEvent::Notice(notice) = event {
            said.push(notice.to_string());
        }
        Ok(())
    };
    import(&source, &RunFolder::new(&run), &mut observer).unwrap();
    assert!(said.iter().any(|said| said.contains("BertModel has no head")), "{said:?}");
    let run = LoadedRun::<MaskedLanguageModel>::open(&run, &LoadSettings::default()).unwrap();
    let out = folder.path().join("out");
    export(&run, &out).unwrap();
    let (ours, theirs) = (tensors(out.join(WEIGHTS)), tensors(golden().join(WEIGHTS)));
    // All weights are kept, also those of the pooler, from which a classifier reads.
    for (name, tensor) in theirs.iter().filter(|(name, _)| name.starts_with("bert.")) {
        assert!(relative(&ours[name], tensor) == 0.0, "{name}");
    }
}

#[test]
fn an_output_projection_of_its_own_is_read_and_written() {
    let projection = "cls.predictions.decoder.weight";
    let bias = "cls.predictions.decoder.bias";
    for is_tied in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let source = changed(&golden(), folder.path(), &|path| {
            set(path.join(CONFIG), "tie_word_embeddings", &json!(is_tied));
            rewrite(path, |weights| {
                let embedding = &weights["bert.embeddings.word_embeddings.weight"];
                let other = (embedding * 0.5).unwrap();
                let other_bias = (&weights["cls.predictions.bias"] + 1.0).unwrap();
                weights.insert(projection.to_owned(), other);
                weights.insert(bias.to_owned(), other_bias);
            });
        });
        let run = imported::<MaskedLanguageModel>(&source, &folder.path().join("run")).unwrap();
        assert_eq!(run.config.model.tied, Tied::None);
        let out = folder.path().join("out");
        export(&run, &out).unwrap();
        assert_eq!(super::json_of(out.join(CONFIG))["tie_word_embeddings"], json!(false));
        let (ours, theirs) = (tensors(out.join(WEIGHTS)), tensors(source.join(WEIGHTS)));
        for (name, tensor) in &ours {
            assert!(relative(tensor, &theirs[name]) == 0.0, "{name}");
        }
        assert!(ours.contains_key(projection) && ours.contains_key(bias));
    }
}

#[test]
fn transformers_agrees_on_spans_and_a_round_trip_changes_no_bit() {
    let source = super::golden("bert-spans");
    let folder = tempfile::tempdir().unwrap();
    let run = imported::<SpanExtractor>(&source, &folder.path().join("run")).unwrap();
    assert_eq!(run.config.task, Task::QuestionAnswering);
    let questions = &run.config.data.questions;
    assert_eq!((questions.max_tokens, questions.max_question_tokens), (24, 6));
    let expected = tensors(source.join("expected.safetensors"));
    let text = Sequences::pack(&rows(&expected["ids"], &expected["lengths"]));
    let segments = Sequences { ids: ids(&expected["segments"]), lengths: text.lengths.clone() };
    let error = relative(&run.model.logits(&segments, &text).unwrap(), &expected["logits"]);
    assert!(error < 1e-5, "logits {error}");
    let batch = Batch {
        asked: Some(ids(&expected["asked"])),
        ..Batch::new(vec![segments, text], ids(&expected["answers"]))
    };
    let (found, gradients) = trained(&run.model, &batch);
    let loss = f64::from(expected["loss"].to_scalar::<f32>().unwrap());
    assert!((found / loss - 1.0).abs() < 1e-5, "loss");
    let files: (&[_], &[_]) = (&[WEIGHTS, "tokenizer.json"], &[CONFIG]);
    check_round_trip(&run, &source, files, &gradients);

    let answers = predict_answers(
        &imported(&source, &folder.path().join("again")).unwrap(),
        &[QuestionInContext {
            question: "Nothing?".to_owned(),
            context: "The seagulls sail on. ".repeat(9),
            id: Some("a".to_owned()),
        }],
        |_| {},
    )
    .unwrap();
    let SpanAnswer { id, answer, start: Some(start), end: Some(end), probability } = &answers[0]
    else {
        panic!("{answers:?}")
    };
    assert_eq!(id.as_deref(), Some("a"));
    assert_eq!(&"The seagulls sail on. ".repeat(9)[*start..*end], answer);
    assert!(*probability > 0.0 && *probability < 1.0);
}

#[test]
fn classes_that_are_told_from_a_mean_are_no_bert() {
    let folder = tempfile::tempdir().unwrap();
    let source = super::golden("bert-classifier");
    let mut run = imported::<TextClassifier>(&source, &folder.path().join("run")).unwrap();
    run.config.model.pooling = Pooling::Mean;
    let error = format!("{:#}", export(&run, &folder.path().join("out")).unwrap_err());
    assert!(error.contains("model.pooling = \"mean\": a BERT has \"class-token\""), "{error}");
}

#[test]
fn older_files_and_those_without_a_head_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let source = changed(&golden(), folder.path(), &|_| {});
    // The changed file calls the parameters of norms gamma and beta, and has tied tensors twice. It
    // has no head for the next sentence, but the pooler from which that head reads.
    rewrite(&source, |weights| {
        let embedding = weights["bert.embeddings.word_embeddings.weight"].clone();
        weights.insert("cls.predictions.decoder.weight".to_owned(), embedding);
        let bias = weights["cls.predictions.bias"].clone();
        weights.insert("cls.predictions.decoder.bias".to_owned(), bias);
        let numbers = Tensor::arange(0_i64, 24, &Device::Cpu).unwrap();
        weights.insert("bert.embeddings.position_ids".to_owned(), numbers);
        weights.retain(|name, _| !name.starts_with("cls.seq_relationship"));
        let older = |name: &str| {
            let name = name.replace("LayerNorm.weight", "LayerNorm.gamma");
            name.replace("LayerNorm.bias", "LayerNorm.beta")
        };
        *weights = weights.iter().map(|(name, tensor)| (older(name), tensor.clone())).collect();
    });
    let run = imported::<MaskedLanguageModel>(&source, &folder.path().join("run")).unwrap();
    assert!(!run.config.data.masked.next_sentence);
    let out = folder.path().join("out");
    export(&run, &out).unwrap();
    assert_eq!(super::json_of(out.join(CONFIG))["architectures"], json!(["BertForMaskedLM"]));
    let (ours, theirs) = (tensors(out.join(WEIGHTS)), tensors(golden().join(WEIGHTS)));
    for (name, tensor) in ours {
        assert!(relative(&tensor, &theirs[&name]) == 0.0, "{name}");
    }
}

#[test]
fn a_folder_that_is_no_bert_is_refused_and_leaves_nothing() {
    let says = |change: &dyn Fn(&Path)| refusal::<MaskedLanguageModel>(&golden(), change);
    for (key, value, said) in [
        ("hidden_act", json!("tanh"), "hidden_act = \"tanh\""),
        ("is_decoder", json!(true), "is_decoder"),
        ("type_vocab_size", json!(3), "model.segments"),
        ("position_embedding_type", json!("relative_key"), "position_embedding_type"),
        ("vocab_size", json!(35), "vocab_size is 35, but tokenizer.json has 36"),
        ("vocab_size", json!(37), "has shape [36, 16], but config.json asks for [37, 16]"),
        ("num_attention_heads", json!(3), "model.heads = 3 does not divide"),
        ("num_hidden_layers", json!(3), "no tensor bert.encoder.layer.2."),
        ("num_hidden_layers", json!(1), "has a tensor bert.encoder.layer.1."),
        ("max_position_embeddings", json!(25), "config.json asks for [25, 16]"),
        ("tie_word_embeddings", json!(false), "no tensor cls.predictions.decoder.weight"),
        ("architectures", json!(["BertForMultipleChoice"]), "[\"BertForMultipleChoice\"]"),
        ("architectures", json!(["BertForMultipleChoice"]), "BertForTokenClassification"),
        ("model_type", json!("electra"), "model_type is \"electra\""),
        ("quantization_config", json!({}), "quantization_config"),
        ("hidden_size", json!("wide"), "not a BERT that can be imported"),
        ("hidden_size", json!(1_u64 << 40), "memory"),
    ] {
        let error = says(&|path| set(path.join(CONFIG), key, &value));
        assert!(error.contains(said), "{key}: {error}");
    }
    let source = super::golden("bert-classifier");
    let says = |change: &dyn Fn(&Path)| refusal::<TextClassifier>(&source, change);
    for (key, value, said) in [
        ("id2label", json!({"0": "a", "2": "b"}), "id2label"),
        ("id2label", json!({"0": "a", "1": "b"}), "classifier.weight has shape [3, 16]"),
        ("problem_type", json!("regression"), "problem_type is regression"),
    ] {
        let error = says(&|path| set(path.join(CONFIG), key, &value));
        assert!(error.contains(said), "{key}: {error}");
    }
}
