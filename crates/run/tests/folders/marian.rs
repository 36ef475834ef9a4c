//! A MarianMT, of `scripts/golden/translation/marian_folder.py`.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};
use taper_decoding::SearchRules;
use taper_model::TranslationModel;
use taper_run::LoadedRun;
use taper_run::translation::TranslationSettings;

use super::translation::{check_ids, check_model, check_searches};
use super::{CONFIG, changed, imported, json_of, refusal, set};

fn golden() -> PathBuf {
    super::golden("marian")
}

fn run(folder: &tempfile::TempDir) -> LoadedRun<TranslationModel> {
    imported(&golden(), &folder.path().join("run")).unwrap()
}

#[test]
fn transformers_agrees_and_a_round_trip_changes_no_bit() {
    let files = ["source.spm", "target.spm", "vocab.json"];
    check_model("marian", &files);
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
    let (run, expected) = (run(&folder), json_of(golden().join("expected.json")));
    check_ids(&run, &expected);
    let (source, target) = (run.tokenizers.source(), run.tokenizers.target());
    // A piece without an id is unknown, and has no row.
    let unknown = source.special_tokens().unknown.unwrap();
    assert_eq!(source.vocabulary_size(), target.vocabulary_size());
    assert!(source.encode("Is it the ship?").unwrap().contains(&unknown));
}

#[test]
fn searches_give_what_generate_gives() {
    let folder = tempfile::tempdir().unwrap();
    let settings = TranslationSettings::of(&run(&folder).config);
    assert_eq!((settings.decoding.beam_size, settings.decoding.max_length), (4, 18));
    assert_eq!(settings.decoding.rules, SearchRules::Transformers);
    check_searches("marian");
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
