//! MarianMT models, with a shared vocabulary and with a vocabulary for each language, agree with
//! Transformers. The golden files are made by `scripts/golden/translation/marian_folder.py`.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use taper_decoding::SearchRules;
use taper_model::{Tied, TranslationModel};
use taper_run::folders::{export, import};
use taper_run::translation::TranslationSettings;
use taper_run::{LoadSettings, LoadedRun, RunEvent, RunFolder};

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
    // A piece without an id is read as the unknown token, and has no row in the embedding.
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
    // The same text has different ids as source and as target.
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

/// The expected ids and texts are those of the package `sentencepiece` 0.2.3 for models with the
/// same added pieces.
#[test]
fn pieces_that_a_user_has_defined_and_those_with_spaces_are_as_in_sentencepiece() {
    let folder = tempfile::tempdir().unwrap();
    let source = changed(&golden(), folder.path(), &|path| {
        let append = |file: &str, piece: &[u8]| {
            let bytes = fs::read(path.join(file)).unwrap();
            fs::write(path.join(file), [bytes.as_slice(), piece].concat()).unwrap();
        };
        // Each message has the text, score and kind of a piece. The first is defined by a user, and
        // the second is normal.
        append("source.spm", b"\n\x0f\n\x06segeln\x15\0\0\0\0\x18\x04");
        let text = "\u{2581}auf\u{2581}See".as_bytes();
        append("target.spm", &[b"\n\x15\n\x0c", text, b"\x15\0\0\x40\xc0\x18\x01"].concat());
        let vocabulary = fs::read_to_string(path.join("vocab.json")).unwrap();
        let mut vocabulary: Value = serde_json::from_str(&vocabulary).unwrap();
        let names = vocabulary.as_object_mut().unwrap();
        for (other, name) in [("C", "segeln"), ("é", "\u{2581}auf\u{2581}See")] {
            let id = names.remove(other).unwrap();
            names.insert(name.to_owned(), id);
        }
        fs::write(path.join("vocab.json"), vocabulary.to_string()).unwrap();
    });
    let run: LoadedRun<TranslationModel> = imported(&source, &folder.path().join("run")).unwrap();
    let tokenizer = run.tokenizers.source();
    let row = tokenizer.source_row(tokenizer.encode("Is segeln, the ship segelns?").unwrap());
    assert_eq!(row, [2, 1, 5, 2, 29, 15, 2, 11, 3, 2, 5, 8, 35, 33, 2, 29, 5, 1, 0]);
    let target = run.tokenizers.target();
    assert_eq!(target.decode(&[32, 41]).unwrap(), "auf See segeln");
}

/// Settings of generation mean what they mean for `generate` of Transformers 5; those that Taper
/// does not follow are named in messages.
#[test]
fn settings_of_generation_are_followed_or_named() {
    let folder = tempfile::tempdir().unwrap();
    let (mut at, mut notes) = (0, Vec::new());
    let mut with = |generation: Value, config: &[(&str, Value)]| {
        at += 1;
        let change = |path: &Path| {
            fs::write(path.join("generation_config.json"), generation.to_string()).unwrap();
            config.iter().for_each(|(key, value)| set(path.join(CONFIG), key, value));
        };
        let source = changed(&golden(), &folder.path().join(at.to_string()), &change);
        let run = folder.path().join(format!("run-{at}"));
        notes.clear();
        import(&source, &RunFolder::new(&run), &mut |event: &RunEvent<'_>| {
            if let RunEvent::Notice(notice) = event {
                notes.push(notice.to_string());
            }
            Ok(())
        })
        .unwrap();
        let run: LoadedRun<TranslationModel> =
            LoadedRun::open(&run, &LoadSettings::default()).unwrap();
        (run, notes.join("\n"))
    };
    let forced = |keys: Value| {
        let mut generation = json!({"eos_token_id": 0, "forced_eos_token_id": 0, "num_beams": 4});
        generation.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
        generation
    };
    // The number of new tokens takes precedence over the whole length. It does not include the
    // first input of the decoder.
    let (run, _) = with(forced(json!({"max_new_tokens": 6, "max_length": 30})), &[]);
    assert_eq!(run.config.decoding.max_length, 5);
    let (run, _) = with(forced(json!({"min_new_tokens": 12, "min_length": 4})), &[]);
    assert_eq!(run.config.decoding.min_length, 12);
    // `generation_config.json` replaces all settings of config.json. Its defaults are 20 new tokens
    // and one beam.
    let (run, _) = with(
        json!({"forced_eos_token_id": 0}),
        &[("num_beams", json!(4)), ("max_length", json!(9)), ("no_repeat_ngram_size", json!(1))],
    );
    let decoding = &run.config.decoding;
    assert_eq!((decoding.beam_size, decoding.max_length, decoding.no_repeat_ngram), (1, 19, 0));
    let (run, _) = with(forced(json!({"forced_bos_token_id": 5})), &[]);
    assert_eq!(run.tokenizers.target().special_tokens().before, [5]);
    assert!(run.tokenizers.source().special_tokens().before.is_empty());
    let words = json!({"suppress_tokens": [9, 7], "bad_words_ids": [[8]]});
    let (run, _) = with(forced(words), &[("bad_words_ids", json!([[3]]))]);
    assert_eq!(run.tokenizers.target().special_tokens().never_written, [7, 8, 9]);

    for (key, value) in [
        ("do_sample", json!(true)),
        ("encoder_repetition_penalty", json!(1.5)),
        ("encoder_no_repeat_ngram_size", json!(2)),
        ("begin_suppress_tokens", json!([3])),
        ("exponential_decay_length_penalty", json!([3, 1.5])),
        ("early_stopping", json!("never")),
    ] {
        let (_, notes) = with(forced(json!({key: value})), &[]);
        assert!(notes.contains(key) && notes.contains("not followed"), "{key}: {notes}");
    }
    let (_, notes) = with(forced(json!({"encoder_repetition_penalty": 1.0})), &[]);
    assert!(!notes.contains("not followed"), "{notes}");
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
        (file("generation_config.json", b"{\"max_length\": 1}"), "leaves none for words"),
        (
            file("generation_config.json", b"{\"eos_token_id\": 0, \"forced_eos_token_id\": 7}"),
            "forced_eos_token_id is 7",
        ),
        (file("generation_config.json", b"{\"forced_bos_token_id\": 999}"), "is not a token"),
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
