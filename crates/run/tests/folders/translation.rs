//! Checks of translation models that are the same for all families. The golden folders have small
//! models, and what Transformers computes with them in `expected.safetensors` and `expected.json`.

use serde_json::Value;
use taper_model::{Batch, Pass, Sequences, TranslationModel};
use taper_run::LoadedRun;
use taper_run::translation::{LineTranslator, TranslationSettings};

use super::{
    CONFIG, WEIGHTS, check_round_trip, golden, imported, json_of, relative, rows, tensors, trained,
};

fn texts(list: &Value) -> Vec<String> {
    list.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
}

fn ids(list: &Value) -> Vec<u32> {
    list.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

/// Imports the golden folder `name` and compares logits, loss and gradients with those of
/// Transformers. Then exports the run and compares the files in `files`, the weights and the
/// settings of generation with those of the golden folder.
pub(crate) fn check_model(name: &str, files: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let golden = golden(name);
    let run: LoadedRun<TranslationModel> = imported(&golden, &folder.path().join("run")).unwrap();
    let expected = tensors(golden.join("expected.safetensors"));
    let sources = rows(&expected["sources"], &expected["source_lengths"]);
    let goals = rows(&expected["targets"], &expected["target_lengths"]);
    let goal = run.tokenizers.target();
    let before = goal.special_tokens().before.len();
    let words = |goal: &[u32]| goal[before..goal.len() - 1].to_vec();
    for ids in &goals {
        assert_eq!(goal.answer_row(words(ids)), *ids);
    }
    let inputs: Vec<Vec<u32>> = goals.iter().map(|ids| goal.target_row(words(ids))).collect();
    let (source, target) = (Sequences::pack(&sources), Sequences::pack(&inputs));
    let pass = Pass::evaluate();
    let encoded = run.model.encode(&source, &pass).unwrap();
    let hidden = run.model.decode(&target, &encoded, &pass).unwrap();
    let error = relative(&run.model.logits(&hidden, &pass).unwrap(), &expected["logits"]);
    assert!(error < 1e-5, "{name}: logits {error}");

    let (found, gradients) = trained(&run.model, &Batch::new(vec![source, target], goals.concat()));
    let loss = f64::from(expected["loss"].to_scalar::<f32>().unwrap());
    assert!((found / loss - 1.0).abs() < 1e-5, "{name}: loss {found} {loss}");
    let whole = [&[WEIGHTS, "generation_config.json"], files].concat();
    check_round_trip(&run, &golden, (&whole, &[CONFIG]), &gradients);
}

/// Compares the token ids of sources and targets, with their special tokens, with those of
/// Transformers.
pub(crate) fn check_ids(run: &LoadedRun<TranslationModel>, expected: &Value) {
    let (source, target) = (run.tokenizers.source(), run.tokenizers.target());
    for (text, row) in texts(&expected["texts"]).iter().zip(expected["sources"].as_array().unwrap())
    {
        assert_eq!(source.source_row(source.encode(text).unwrap()), ids(row), "{text}");
    }
    for (text, row) in expected["goals"].as_object().unwrap() {
        let found = target.encode(text).unwrap();
        assert_eq!(target.answer_row(found.iter().copied()), ids(row), "{text}");
    }
}

/// Compares translations with those of Transformers: by greedy search, and by beam search with a
/// beam of 4.
pub(crate) fn check_searches(name: &str) {
    let folder = tempfile::tempdir().unwrap();
    let golden = golden(name);
    let run: LoadedRun<TranslationModel> = imported(&golden, &folder.path().join("run")).unwrap();
    let expected = json_of(golden.join("expected.json"));
    let mut settings = TranslationSettings::from_config(&run.config);
    let lines = texts(&expected["texts"]);
    for (search, beam_size) in [("greedy", 1), ("beam", 4)] {
        settings.decoding.beam_size = beam_size;
        let translator = LineTranslator::new(&run, &settings).unwrap();
        let found = translator.translate(&lines, &[], 1, |_| {}).unwrap();
        let found: Vec<String> =
            found.map(|line| line.unwrap().translations[0].text.clone()).collect();
        assert_eq!(found, texts(&expected[search]), "{name}: {search}");
        // The translation of a blank line is blank, without the token of a language.
        let empty = [String::new()];
        let blank = translator.translate(&empty, &[], 1, |_| {}).unwrap();
        let blank: Vec<String> =
            blank.map(|line| line.unwrap().translations[0].text.clone()).collect();
        assert_eq!(blank, [""]);
    }
}
