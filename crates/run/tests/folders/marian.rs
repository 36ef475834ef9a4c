//! A MarianMT, of `scripts/golden/translation/marian_folder.py`.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};
use taper_decoding::SearchRules;
use taper_model::{Batch, Pass, Sequences, TranslationModel};
use taper_run::LoadedRun;
use taper_run::translation::{LineTranslator, TranslationSettings};

use super::{
    CONFIG, WEIGHTS, changed, check_round_trip, imported, json_of, refusal, relative, rows, set,
    tensors, trained,
};

fn golden() -> PathBuf {
    super::golden("marian")
}

fn expected() -> Value {
    json_of(golden().join("expected.json"))
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
}

fn ids(list: &Value) -> Vec<u32> {
    list.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

fn run(folder: &tempfile::TempDir) -> LoadedRun<TranslationModel> {
    imported(&golden(), &folder.path().join("run")).unwrap()
}

#[test]
fn transformers_agrees_and_a_round_trip_changes_no_bit() {
    let folder = tempfile::tempdir().unwrap();
    let run = run(&folder);
    let expected = tensors(golden().join("expected.safetensors"));
    let sources = rows(&expected["sources"], &expected["source_lengths"]);
    let goals = rows(&expected["targets"], &expected["target_lengths"]);
    let goal = run.tokenizers.target();
    let words = |goal: &[u32]| goal[..goal.len() - 1].to_vec();
    let inputs: Vec<Vec<u32>> = goals.iter().map(|ids| goal.target_row(words(ids))).collect();
    let (source, target) = (Sequences::pack(&sources), Sequences::pack(&inputs));
    let pass = Pass::evaluate();
    let encoded = run.model.encode(&source, &pass).unwrap();
    let hidden = run.model.decode(&target, &encoded, &pass).unwrap();
    let error = relative(&run.model.logits(&hidden, &pass).unwrap(), &expected["logits"]);
    assert!(error < 1e-5, "logits {error}");

    let (found, gradients) = trained(&run.model, &Batch::new(vec![source, target], goals.concat()));
    let loss = f64::from(expected["loss"].to_scalar::<f32>().unwrap());
    assert!((found / loss - 1.0).abs() < 1e-5, "loss {found} {loss}");
    let whole = [WEIGHTS, "source.spm", "target.spm", "vocab.json", "generation_config.json"];
    check_round_trip(&run, &golden(), (&whole, &[CONFIG]), &gradients);
}

#[test]
fn languages_are_those_of_the_tokenizer() {
    let languages = |source: Value, target: Value| {
        let folder = tempfile::tempdir().unwrap();
        let source = changed(&golden(), folder.path(), &|path| {
            set(path.join("tokenizer_config.json"), "source_lang", &source);
            set(path.join("tokenizer_config.json"), "target_lang", &target);
        });
        let run: LoadedRun<TranslationModel> =
            imported(&source, &folder.path().join("run")).unwrap();
        let signature = run.config.evaluation.tokenize.to_string();
        (run.config.data.source_language, run.config.data.target_language, signature)
    };
    let names = |source: &str, target: &str, tokenizer: &str| {
        (source.to_owned(), target.to_owned(), tokenizer.to_owned())
    };
    assert_eq!(languages(json!("eng"), json!("zho")), names("eng", "zho", "zh"));
    assert_eq!(languages(json!(null), json!("../text")), names("source", "target", "13a"));
}

#[test]
fn pieces_have_the_ids_of_the_vocabulary() {
    let folder = tempfile::tempdir().unwrap();
    let (run, expected) = (run(&folder), expected());
    let source = run.tokenizers.source();
    for (text, row) in texts(&expected["texts"]).iter().zip(expected["sources"].as_array().unwrap())
    {
        assert_eq!(source.source_row(source.encode(text).unwrap()), ids(row), "{text}");
    }
    let target = run.tokenizers.target();
    for (text, row) in expected["goals"].as_object().unwrap() {
        let found = target.encode(text).unwrap();
        assert_eq!(target.source_row(found.iter().copied()), ids(row), "{text}");
    }
    // A piece without an id is unknown, and has no row.
    let unknown = source.special_tokens().unknown.unwrap();
    assert_eq!(source.vocabulary_size(), target.vocabulary_size());
    assert!(source.encode("Is it the ship?").unwrap().contains(&unknown));
}

#[test]
fn searches_give_what_generate_gives() {
    let folder = tempfile::tempdir().unwrap();
    let (run, expected) = (run(&folder), expected());
    let mut settings = TranslationSettings::of(&run.config);
    assert_eq!((settings.decoding.beam_size, settings.decoding.max_length), (4, 18));
    assert_eq!(settings.decoding.rules, SearchRules::Transformers);
    let lines = texts(&expected["texts"]);
    for (name, beam_size) in [("greedy", 1), ("beam", 4)] {
        settings.decoding.beam_size = beam_size;
        let translator = LineTranslator::new(&run, &settings).unwrap();
        let found = translator.translate(&lines, &[], 1, |_| {}).unwrap();
        let found: Vec<String> =
            found.map(|line| line.unwrap().translations[0].text.clone()).collect();
        assert_eq!(found, texts(&expected[name]), "{name}");
    }
}

#[test]
fn folders_that_are_something_else_are_refused() {
    type M = TranslationModel;
    let config = |key: &'static str, value: Value| {
        refusal::<M>(&golden(), &|path| set(path.join(CONFIG), key, &value))
    };
    for (error, said) in [
        (config("share_encoder_decoder_embeddings", json!(false)), "share_encoder_decoder"),
        (config("decoder_ffn_dim", json!(20)), "another key says 20"),
        (config("activation_function", json!("tanh")), "\"tanh\""),
        (config("scale_embedding", json!("yes")), "scale_embedding is \"yes\""),
        (config("vocab_size", json!(20)), "decoder_start_token_id"),
    ] {
        assert!(error.contains(said), "{error}");
    }
    let file = |name: &'static str, content: &'static [u8]| {
        refusal::<M>(&golden(), &|path| fs::write(path.join(name), content).unwrap())
    };
    for (error, said) in [
        (file("source.spm", b"\x0a\xff"), "source.spm: not a model of SentencePiece"),
        (file("source.spm", b""), "it has no pieces"),
        (file("vocab.json", b"{\"</s>\": 0}"), "no token <unk>"),
        (file("vocab.json", b"[]"), "not an object of tokens"),
        (file("generation_config.json", b"{\"bad_words_ids\": [[1, 2]]}"), "single tokens"),
        (file("generation_config.json", b"{\"num_beams\": -1}"), "num_beams is -1"),
        (file("generation_config.json", b"{\"repetition_penalty\": 1.5}"), "repetition_penalty"),
    ] {
        assert!(error.contains(said), "{error}");
    }
    let missing = refusal::<M>(&golden(), &|path| {
        fs::remove_file(path.join("target.spm")).unwrap();
    });
    assert!(missing.contains("target.spm"), "{missing}");
}
