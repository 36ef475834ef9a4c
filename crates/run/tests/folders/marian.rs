//! MarianMTs with one vocabulary for both languages and with one for each, of
//! `scripts/golden/translation/marian_folder.py`.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};
use taper_decoding::SearchRules;
use taper_model::{Tied, TranslationModel};
use taper_run::LoadedRun;
use taper_run::folders::export;
use taper_run::translation::TranslationSettings;

use super::translation::{check_ids, check_model, check_searches};
use super::{
    CONFIG, WEIGHTS, changed, imported, json_of, refusal, relative, rewrite, set, tensors,
};

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
    check_model("marian-two", &[&files[..], &["target_vocab.json"]].concat());
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
fn each_language_has_its_vocabulary() {
    let folder = tempfile::tempdir().unwrap();
    let golden = super::golden("marian-two");
    let run: LoadedRun<TranslationModel> = imported(&golden, &folder.path().join("run")).unwrap();
    check_ids(&run, &json_of(golden.join("expected.json")));
    let [source, target] = ["vocab_size", "decoder_vocab_size"]
        .map(|key| json_of(golden.join(CONFIG))[key].as_u64().unwrap() as usize);
    assert_ne!(source, target);
    assert_eq!(run.tokenizers.vocabulary_sizes(), (source, target));
    assert_eq!((run.model.vocab_source(), run.model.vocab_target()), (source, target));
    // The same text has other ids.
    let text = "ships";
    let of_source = run.tokenizers.source().encode(text).unwrap();
    assert_ne!(of_source, run.tokenizers.target().encode(text).unwrap());
}

#[test]
fn an_output_of_its_own_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let source = changed(&super::golden("marian-two"), folder.path(), &|path| {
        rewrite(path, |weights| {
            let output = weights["model.decoder.embed_tokens.weight"].affine(2.0, 0.0).unwrap();
            weights.insert("lm_head.weight".to_owned(), output);
        });
    });
    let run: LoadedRun<TranslationModel> = imported(&source, &folder.path().join("run")).unwrap();
    assert_eq!(run.config.model.tied, Tied::None);
    let out = folder.path().join("out");
    export(&run, &out).unwrap();
    assert_eq!(json_of(out.join(CONFIG))["tie_word_embeddings"], json!(false));
    let [theirs, ours] = [&source, &out].map(|folder| tensors(folder.join(WEIGHTS)));
    assert_eq!(theirs.len(), ours.len());
    for (name, values) in ours {
        assert!(relative(&values, &theirs[&name]) == 0.0, "{name}");
    }
    imported::<TranslationModel>(&out, &folder.path().join("again")).unwrap();
}

#[test]
fn searches_give_what_generate_gives() {
    let folder = tempfile::tempdir().unwrap();
    let settings = TranslationSettings::from_config(&run(&folder).config);
    assert_eq!((settings.decoding.beam_size, settings.decoding.max_length), (4, 18));
    assert_eq!(settings.decoding.rules, SearchRules::Transformers);
    check_searches("marian");
    check_searches("marian-two");
}

#[test]
fn folders_that_are_something_else_are_refused() {
    type M = TranslationModel;
    let config = |key: &'static str, value: Value| {
        refusal::<M>(&golden(), &|path| set(path.join(CONFIG), key, &value))
    };
    for (error, said) in [
        (config("share_encoder_decoder_embeddings", json!(false)), "target_vocab.json: no such"),
        (config("share_encoder_decoder_embeddings", json!(0)), "expected true or false"),
        (config("tie_word_embeddings", json!(false)), "tie_word_embeddings is false"),
        (config("decoder_ffn_dim", json!(20)), "another key sets the same property to 20"),
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
    let two = |key: &'static str, value: Value| {
        refusal::<M>(&super::golden("marian-two"), &|path| set(path.join(CONFIG), key, &value))
    };
    for (error, said) in [
        (
            two("share_encoder_decoder_embeddings", json!(true)),
            "decoder.embed_tokens.weight has shape",
        ),
        (two("decoder_vocab_size", json!(34)), "target.spm: the token \"l\" has the id 34"),
        (two("decoder_vocab_size", json!("many")), "decoder_vocab_size is \"many\""),
        (two("decoder_vocab_size", json!(36)), "asks for [36, 16]"),
    ] {
        assert!(error.contains(said), "{error}");
    }
    let missing = refusal::<M>(&golden(), &|path| {
        fs::remove_file(path.join("target.spm")).unwrap();
    });
    assert!(missing.contains("target.spm"), "{missing}");
}
