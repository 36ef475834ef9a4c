//! BART, mBART and NLLB agree with Transformers. The golden files are made by
//! `scripts/golden/translation/bart_folders.py`.

use serde_json::{Value, json};
use taper_model::TranslationModel;
use taper_run::folders::{ImportSettings, import_with};
use taper_run::{LoadSettings, LoadedRun, RunEvent, RunFolder};

use super::translation::{check_ids, check_model, check_searches};
use super::{CONFIG, changed, golden, imported, json_of, refusal, set};

type M = TranslationModel;

const NAMES: [&str; 3] = ["nllb", "bart", "mbart"];

#[test]
fn transformers_agrees_and_a_round_trip_changes_no_bit() {
    for name in NAMES {
        check_model(name, &["tokenizer.json"]);
    }
}

#[test]
fn rows_have_the_tokens_of_languages() {
    for name in NAMES {
        let folder = tempfile::tempdir().unwrap();
        let run: LoadedRun<M> = imported(&golden(name), &folder.path().join("run")).unwrap();
        check_ids(&run, &json_of(golden(name).join("expected.json")));
    }
}

#[test]
fn searches_give_what_generate_gives() {
    NAMES.iter().for_each(|name| check_searches(name));
}

/// Run imported from the golden folder `name` with the given source and target language, after
/// `keys` have been set in its `tokenizer_config.json`.
fn between(
    name: &str,
    languages: [Option<&str>; 2],
    keys: &[(&str, serde_json::Value)],
) -> anyhow::Result<LoadedRun<M>> {
    let folder = tempfile::tempdir().unwrap();
    let source = changed(&golden(name), folder.path(), &|path| {
        keys.iter().for_each(|(key, value)| set(path.join("tokenizer_config.json"), key, value));
    });
    let run = folder.path().join("run");
    let [source_language, target_language] = languages.map(|name| name.map(str::to_owned));
    let settings = ImportSettings { source_language, target_language };
    import_with(&source, &RunFolder::new(&run), &settings, &mut |_: &RunEvent<'_>| Ok(()))?;
    LoadedRun::open(&run, &LoadSettings::default())
}

/// Special tokens of the run: those around a source, those around a target, and the first input of
/// the decoder.
fn rows(run: &LoadedRun<M>) -> [Vec<String>; 3] {
    let (source, target) = (run.tokenizers.source(), run.tokenizers.target());
    let rows = [source.source_row([]), target.answer_row([]), vec![target.decoder_start()]];
    rows.map(|row| row.into_iter().map(|id| target.token(id).unwrap()).collect())
}

#[test]
fn languages_are_chosen() {
    let run = between("nllb", [Some("fra_Latn"), Some("eng_Latn")], &[]).unwrap();
    assert_eq!(rows(&run), [vec!["fra_Latn", "</s>"], vec!["eng_Latn", "</s>"], vec!["</s>"]]);
    assert_eq!(run.config.data.source_language, "fra_Latn");
    let legacy = [("legacy_behaviour", json!(true))];
    let run = between("nllb", [None, None], &legacy).unwrap();
    assert_eq!(rows(&run), [vec!["</s>", "eng_Latn"], vec!["deu_Latn", "</s>"], vec!["</s>"]]);
    let first = [("tokenizer_class", json!("MBartTokenizer"))];
    let run = between("mbart", [None, Some("ro_RO")], &first).unwrap();
    assert_eq!(rows(&run), [vec!["</s>", "en_XX"], vec!["</s>"], vec!["ro_RO"]]);
    // Without `tgt_lang`, the target language is known from the token with which generation begins.
    let run = between("mbart", [None, None], &[("tgt_lang", json!(null))]).unwrap();
    assert_eq!(run.config.data.target_language, "de_DE");
    // In a model of one language, the languages have names but no tokens.
    let run = between("bart", [Some("en"), Some("simple")], &[]).unwrap();
    assert_eq!(rows(&run), [vec!["<s>", "</s>"], vec!["<s>", "</s>"], vec!["</s>"]]);
    assert_eq!(run.config.data.target_language, "simple");

    for (languages, said) in [
        (
            [Some("english"), None],
            "there is no language \"english\": choose one of the 3 by --source: eng_Latn, deu_Latn, \
             fra_Latn",
        ),
        ([None, Some("The")], "by --target"),
        ([Some("../x"), None], "no name of a language"),
    ] {
        let error = between("nllb", languages, &[]).map(|_| ()).expect_err(said);
        let error = taper_run::one_line(&error);
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn folders_that_are_something_else_are_refused() {
    for (name, key, value, said) in [
        ("nllb", "tie_word_embeddings", json!(false), "tie_word_embeddings"),
        ("bart", "is_decoder", json!(true), "is_decoder"),
        ("mbart", "decoder_ffn_dim", json!(20), "another key sets the same property to 20"),
        ("bart", "num_attention_heads", json!(2), "encoder_attention_heads is 2, but another key"),
        ("bart", "num_hidden_layers", json!(1), "another key sets the same property to 1"),
        ("bart", "encoder_attention_heads", Value::Null, "absent, which means 16, but another key"),
        ("mbart", "max_position_embeddings", json!(39), "embed_positions"),
        ("nllb", "vocab_size", json!(20), "vocab_size is 20"),
    ] {
        let error = refusal::<M>(&golden(name), &|path| set(path.join(CONFIG), key, &value));
        assert!(error.contains(said), "{error}");
    }
}
