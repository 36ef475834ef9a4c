//! A T5 of version 1.0, an mT5 and a umT5 agree with Transformers. The golden files are made by
//! `scripts/golden/translation/t5_folder.py`.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};
use taper_decoding::SearchRules;
use taper_model::{Batch, Pass, Sequences, Tied, TranslationModel};
use taper_run::LoadedRun;
use taper_run::translation::{LineTranslator, TranslationSettings};

use super::{
    CONFIG, WEIGHTS, changed, check_round_trip, imported, json_of, refusal, relative, rewrite,
    rows, set, tensors, trained,
};

const FOLDERS: [&str; 3] = ["t5", "mt5", "umt5"];

fn golden(name: &str) -> PathBuf {
    super::golden(name)
}

fn expected(name: &str) -> Value {
    json_of(golden(name).join("expected.json"))
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
}

fn ids(list: &Value) -> Vec<u32> {
    list.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

fn run(name: &str, folder: &tempfile::TempDir) -> LoadedRun<TranslationModel> {
    imported(&golden(name), &folder.path().join("run")).unwrap()
}

/// Runs the model of `run` on the golden texts of the folder `name`. Returns the relative error of
/// the logits, the loss in Taper and the loss in Transformers, and the gradients in Taper.
fn outputs(run: &LoadedRun<TranslationModel>, name: &str) -> (f64, [f64; 2], candle_core::Tensor) {
    let expected = tensors(golden(name).join("expected.safetensors"));
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
    let (ours, gradients) = trained(&run.model, &Batch::new(vec![source, target], goals.concat()));
    let theirs = f64::from(expected["loss"].to_scalar::<f32>().unwrap());
    (error, [ours, theirs], gradients)
}

#[test]
fn transformers_agrees_and_a_round_trip_changes_no_bit() {
    for (name, tokens) in
        [("t5", "tokenizer.json"), ("mt5", "spiece.model"), ("umt5", "spiece.model")]
    {
        let folder = tempfile::tempdir().unwrap();
        let run = run(name, &folder);
        let (error, [ours, theirs], gradients) = outputs(&run, name);
        assert!(error < 1e-5, "{name}: logits {error}");
        assert!((ours / theirs - 1.0).abs() < 1e-5, "{name}: loss {ours} {theirs}");
        let whole = [WEIGHTS, tokens, "generation_config.json"];
        // An mT5 is exported as a T5 of version 1.1, which is the same architecture, so its
        // `config.json` differs.
        let keyed: &[&str] = if name == "mt5" { &[] } else { &[CONFIG] };
        check_round_trip(&run, &golden(name), (&whole, keyed), &gradients);
    }
}

/// A T5 of version 1.1 has the architecture of mT5 under another name. Either of two keys shows the
/// version.
#[test]
fn versions_of_t5_are_told_apart() {
    let imported_as = |keys: &[(&str, Value)]| {
        let folder = tempfile::tempdir().unwrap();
        let source = changed(&golden("mt5"), folder.path(), &|path| {
            set(path.join(CONFIG), "model_type", &json!("t5"));
            set(path.join(CONFIG), "architectures", &json!(["T5ForConditionalGeneration"]));
            for (key, value) in keys {
                set(path.join(CONFIG), key, value);
            }
        });
        let run: LoadedRun<TranslationModel> =
            imported(&source, &folder.path().join("run")).unwrap();
        let out = folder.path().join("out");
        taper_run::folders::export(&run, &out).unwrap();
        let config = json_of(out.join(CONFIG));
        let keys = ["tie_word_embeddings", "scale_decoder_outputs", "model_type"];
        (run.config.model.tied, outputs(&run, "mt5").0, keys.map(|key| config[key].clone()))
    };
    let (older, newer) = ("tie_word_embeddings", "scale_decoder_outputs");
    for keys in [&[(older, json!(false))][..], &[(newer, json!(false)), (older, json!(true))]] {
        let (tied, error, written) = imported_as(keys);
        assert!(tied == Tied::Embeddings && error < 1e-5, "{keys:?}: {tied:?} {error}");
        assert_eq!(written, [json!(false), json!(false), json!("t5")], "{keys:?}");
    }
    let (tied, error, written) = imported_as(&[(newer, json!(true))]);
    assert!(tied == Tied::Embeddings && error > 0.5, "{tied:?} {error}");
    assert_eq!(written, [json!(false), json!(true), json!("t5")]);
}

#[test]
fn texts_have_the_ids_of_transformers() {
    for name in FOLDERS {
        let folder = tempfile::tempdir().unwrap();
        let (run, expected) = (run(name, &folder), expected(name));
        let (source, target) = (run.tokenizers.source(), run.tokenizers.target());
        let prefix = expected["prefix"].as_str().unwrap();
        // Only the folder of the T5 names its task, which becomes the prefix of sources.
        let own = prefix.to_owned();
        assert_eq!(run.config.data.source_prefix, if name == "t5" { own } else { String::new() });
        let tokenizers = run.tokenizers.clone().with_source_prefix(prefix).unwrap();
        assert_eq!(tokenizers.hash(), run.tokenizers.hash());
        for (text, row) in
            texts(&expected["texts"]).iter().zip(expected["sources"].as_array().unwrap())
        {
            let found = source.encode(text).unwrap();
            assert_eq!(tokenizers.source().source_row(found), ids(row), "{name}: {text}");
        }
        for (text, row) in expected["goals"].as_object().unwrap() {
            let found = target.encode(text).unwrap();
            assert_eq!(target.answer_row(found), ids(row), "{name}: {text}");
        }
        // Sentinels (tokens for text left out in training) come after the pieces, those with larger
        // numbers first.
        let sentinels = [0, 4].map(|number| source.id(&format!("<extra_id_{number}>")).unwrap());
        assert_eq!(sentinels[0], sentinels[1] + 4);
        assert_eq!(source.vocabulary_size() as u32, sentinels[0] + 4);
        assert!(source.is_special(sentinels[0]));
    }
}

#[test]
fn searches_give_what_generate_gives() {
    for name in FOLDERS {
        let folder = tempfile::tempdir().unwrap();
        let (mut run, expected) = (run(name, &folder), expected(name));
        let prefix = expected["prefix"].as_str().unwrap();
        run.tokenizers = run.tokenizers.clone().with_source_prefix(prefix).unwrap();
        let mut settings = TranslationSettings::from_config(&run.config);
        assert_eq!((settings.decoding.beam_size, settings.decoding.max_length), (4, 18));
        assert_eq!(settings.decoding.rules, SearchRules::Transformers);
        let lines = texts(&expected["texts"]);
        for (kind, beam_size) in [("greedy", 1), ("beam", 4)] {
            settings.decoding.beam_size = beam_size;
            let translator = LineTranslator::new(&run, &settings).unwrap();
            let found = translator.translate(&lines, &[], 1, |_| {}).unwrap();
            let found: Vec<String> =
                found.map(|line| line.unwrap().translations[0].text.clone()).collect();
            assert_eq!(found, texts(&expected[kind]), "{name}: {kind}");
        }
    }
}

/// Without settings of generation, `generate` of Transformers 5 writes up to 20 tokens and does not
/// force an end token.
#[test]
fn a_folder_without_settings_of_generation_forces_no_end() {
    let folder = tempfile::tempdir().unwrap();
    let source = changed(&golden("t5"), folder.path(), &|path| {
        fs::remove_file(path.join("generation_config.json")).unwrap();
    });
    let run: LoadedRun<TranslationModel> = imported(&source, &folder.path().join("run")).unwrap();
    let decoding = &run.config.decoding;
    assert_eq!((decoding.rules, decoding.max_length), (SearchRules::TransformersOpen, 20));
}

#[test]
fn folders_that_are_something_else_are_refused() {
    type M = TranslationModel;
    let config = |key: &'static str, value: Value| {
        refusal::<M>(&golden("t5"), &|path| set(path.join(CONFIG), key, &value))
    };
    for (error, said) in [
        (config("feed_forward_proj", json!("gated-tanh")), "feed_forward_proj = \"tanh\""),
        (config("feed_forward_proj", json!("dense-relu")), "feed_forward_proj is \"dense-relu\""),
        (config("feed_forward_proj", json!(7)), "feed_forward_proj is 7"),
        (config("feed_forward_proj", json!("gated-gelu")), "is_gated_act is false"),
        (config("feed_forward_proj", json!("gelu")), "dense_act_fn is \"relu\""),
        (config("dense_act_fn", json!("gelu")), "\"relu\", means \"relu\""),
        (config("num_hidden_layers", json!(1)), "another key sets the same property to 1"),
        (config("d_kv", json!(5)), "config.json asks for"),
        (config("num_decoder_layers", json!(-1)), "num_decoder_layers is -1"),
        (config("relative_attention_num_buckets", json!(3)), "model.relative_buckets = 3"),
        (config("relative_attention_max_distance", json!(4)), "model.relative_distance = 4"),
        (config("is_encoder_decoder", json!(false)), "is_encoder_decoder is false"),
        (config("tie_word_embeddings", json!(false)), "has no tensor lm_head.weight"),
        (config("model_type", json!("longt5")), "model_type is \"longt5\""),
    ] {
        assert!(error.contains(said), "{error}");
    }
    let one_table = refusal::<M>(&golden("umt5"), &|path| {
        set(path.join(CONFIG), "model_type", &json!("mt5"));
        set(path.join(CONFIG), "architectures", &json!(["MT5ForConditionalGeneration"]));
    });
    assert!(
        one_table.contains("block.1.layer.0.SelfAttention.relative_attention_bias"),
        "{one_table}"
    );
    let other = refusal::<M>(&golden("t5"), &|path| {
        rewrite(path, |weights| {
            let other = (&weights["shared.weight"] * 2.0).unwrap();
            weights.insert("encoder.embed_tokens.weight".to_owned(), other);
        });
    });
    assert!(other.contains("encoder.embed_tokens.weight differs from shared.weight"), "{other}");
    let pieces = |content: &'static [u8]| {
        refusal::<M>(&golden("mt5"), &|path| {
            fs::write(path.join("spiece.model"), content).unwrap();
        })
    };
    assert!(pieces(b"\x0a\xff").contains("spiece.model: not a model of SentencePiece"));
    let missing = refusal::<M>(&golden("mt5"), &|path| {
        fs::remove_file(path.join("spiece.model")).unwrap();
    });
    assert!(missing.contains("spiece.model"), "{missing}");
}
