//! `README.md` of an exported folder, its model card. The card states facts about the model as text
//! for people, and again as metadata. Model hubs use the metadata to search models and to list
//! their scores. Facts that are not recorded in the run (the folder of the trained model) are left
//! out.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use taper_data::Corpus;
use taper_trainer::MODEL_FILE;

use crate::LoadedRun;
use crate::config::{RunConfig, every_difference};
use crate::folder::RunFolder;
use crate::folder::files::write_atomically;
use crate::tasks::{TaskModel, entry};

/// File name of the card.
const CARD: &str = "README.md";

/// Library that can read an exported folder.
#[derive(Debug, Clone)]
pub(crate) struct Library {
    /// Name of the library on hubs.
    pub(crate) name: &'static str,
    /// Example program that uses the folder, in Markdown; can be empty.
    pub(crate) usage: String,
}

/// Metrics in `scores.json`. Each has a JSON pointer to the score, the identifier of the metric on
/// hubs, and its name in the card.
const METRICS: &[(&str, &str, &str)] = &[
    ("/bleu", "bleu", "BLEU"),
    ("/chrf", "chrf", "chrF2"),
    ("/chrf_plus_plus", "chrf", "chrF2++"),
    ("/perplexity", "perplexity", "Perplexity"),
    ("/accuracy", "accuracy", "Accuracy"),
    ("/entities/f1", "f1", "F1 of entities"),
    ("/all/exact_match", "exact_match", "Exact match"),
    ("/all/f1", "f1", "F1"),
];

/// Value of a metric on a test set.
#[derive(Debug, PartialEq)]
struct Score {
    split: String,
    metric: &'static str,
    name: &'static str,
    value: f64,
    signature: Option<String>,
}

/// Prefixes of the keys of the configuration that the card omits, because these keys do not change
/// the model.
const LEFT_OUT: &[&str] = &["training.log_", "training.validate_", "training.checkpoint"];

/// Writes the card of `run` into `folder`.
///
/// # Errors
/// If the card cannot be written, or a file of the run cannot be read.
pub(crate) fn write<M: TaskModel>(
    run: &LoadedRun<M>,
    folder: &Path,
    library: &Library,
) -> Result<()> {
    let home = RunFolder::around(&run.checkpoint);
    let scores = match &home {
        Some(home) => scores(home, &run.checkpoint)?,
        None => Vec::new(),
    };
    let data: Value = match home.and_then(|home| fs::read(home.data_report()).ok()) {
        Some(text) => serde_json::from_slice(&text).unwrap_or_default(),
        None => Value::Null,
    };
    let config = &run.config;
    let mut text = front_matter(config, library, &scores);
    let name = match config.name.as_str() {
        "" => "Model",
        name => name,
    };
    let _ = write!(text, "\n# {name}\n\n{}\n", about(config, !data.is_null()));
    let mut section = |title: &str, content: &str| {
        if !content.is_empty() {
            let _ = write!(text, "\n## {title}\n\n{}\n", content.trim_end());
        }
    };
    section("Use", &library.usage);
    section("Data", &described_data(config, &data));
    section("Scores", &table(&scores));
    let (parameters, step) = (run.model.parameters().len(), run.state.step);
    let parent = run.state.parent.as_ref().and_then(|parent| parent.path.file_name());
    let parent = parent.map(|name| format!(", begun with the weights of `{}`", name.display()));
    let training = format!(
        "{parameters} parameters after {step} updates{}.{}",
        parent.unwrap_or_default(),
        recipe(config, !data.is_null())?
    );
    section("Training", &training);
    write_atomically(&folder.join(CARD), text.as_bytes())
}

/// Metadata in YAML. Text is quoted as in JSON, which is valid in YAML, too.
fn front_matter(config: &RunConfig, library: &Library, scores: &[Score]) -> String {
    let mut text = "---\n".to_owned();
    let languages = languages(config);
    if let Some(languages) = languages {
        let _ = writeln!(text, "language:\n- {}\n- {}", json!(languages[0]), json!(languages[1]));
    }
    let _ = writeln!(text, "library_name: {}", library.name);
    if let Some(task) = entry(config.task).hub_name {
        let _ = writeln!(text, "pipeline_tag: {task}");
    }
    text.push_str("tags:\n- taper\n");
    let (Some(task), false) = (entry(config.task).hub_name, scores.is_empty()) else {
        return text + "---\n";
    };
    let _ = writeln!(text, "model-index:\n- name: {}\n  results:", json!(config.name));
    for set in scores.chunk_by(|one, other| one.split == other.split) {
        let split = json!(set[0].split);
        let _ = writeln!(
            text,
            "  - task:\n      type: {task}\n    dataset:\n      name: {split}\n      type: {split}\n    \
             metrics:"
        );
        for Score { metric, name, value, signature, .. } in set {
            let _ = writeln!(
                text,
                "    - type: {metric}\n      value: {value}\n      name: {}",
                json!(name)
            );
            if let Some(signature) = signature {
                let _ = writeln!(text, "      args:\n        signature: {}", json!(signature));
            }
        }
    }
    text + "---\n"
}

/// Languages of a translation model; `None` if they are not known.
fn languages(config: &RunConfig) -> Option<[&str; 2]> {
    let languages = [config.data.source_language.as_str(), config.data.target_language.as_str()];
    let is_code = |name: &&str| {
        let name = name.split(['-', '_']).next().unwrap_or_default();
        matches!(name.len(), 2 | 3) && name.bytes().all(|byte| byte.is_ascii_lowercase())
    };
    let is_known = entry(config.task).translates && languages.iter().all(is_code);
    is_known.then_some(languages)
}

/// Sentence about the languages and the task of the model. `is_trained`: whether Taper trained it,
/// and did not import it.
fn about(config: &RunConfig, is_trained: bool) -> String {
    let task = match languages(config) {
        Some([source, target]) => format!("from `{source}` into `{target}`, of the task "),
        None => "of the task ".to_owned(),
    };
    let made = if is_trained { "trained and exported" } else { "exported" };
    format!("A model {task}{}, {made} with Taper.", config.task)
}

/// Lists corpora and their sizes; empty if the run has no report about its data. An imported run
/// has no report: its configuration names data, but the model was not trained on them.
fn described_data(config: &RunConfig, report: &Value) -> String {
    let mut text = String::new();
    if report.is_null() {
        return text;
    }
    if let Some(folder) = config.data.dir.file_name() {
        let _ = writeln!(text, "- Folder: `{}`", folder.display());
    }
    for (split, corpora, part) in [
        ("Training", &config.data.train, Some("/train")),
        ("Validation", &config.data.validation, Some("/validation")),
        ("Tests", &config.data.test, None),
    ] {
        let names: Vec<String> =
            corpora.iter().map(Corpus::name).filter(|name| !name.is_empty()).collect();
        if names.is_empty() {
            continue;
        }
        let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        let counted =
            ["pairs_kept", "documents", "examples", "words"].into_iter().find_map(|unit| {
                let count = report.pointer(&format!("{}/{unit}", part?))?.as_u64()?;
                Some(format!(", {count} {}", unit.trim_end_matches("_kept")))
            });
        let _ = writeln!(text, "- {split}: {}{}", names.join(", "), counted.unwrap_or_default());
    }
    text
}

/// Scores of the weights in `checkpoint`; empty if the run has no scores, or only scores of other
/// weights.
fn scores(home: &RunFolder, checkpoint: &Path) -> Result<Vec<Score>> {
    let path = home.scores();
    let written = |path: &Path| fs::metadata(path).and_then(|file| file.modified());
    let (Ok(scored), Ok(saved)) = (written(&path), written(&checkpoint.join(MODEL_FILE))) else {
        return Ok(Vec::new());
    };
    // The scores of a run are measured with its default checkpoint. Paths are compared in canonical
    // form, because a folder can have several paths.
    let named = checkpoint.canonicalize();
    let default = home.checkpoint(None).ok().and_then(|path| path.canonicalize().ok());
    let is_default = default.is_some_and(|default| named.is_ok_and(|named| named == default));
    if !is_default || scored < saved {
        return Ok(Vec::new());
    }
    let text = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let records: Vec<Value> = serde_json::from_slice(&text)
        .with_context(|| format!("{} does not hold scores", path.display()))?;
    Ok(records.iter().flat_map(scores_of).collect())
}

/// Scores in the record of one test set.
fn scores_of(record: &Value) -> Vec<Score> {
    let score = |&(place, metric, name): &(&str, &'static str, &'static str)| {
        let found = record.pointer(place)?;
        Some(Score {
            split: record["split"].as_str()?.to_owned(),
            metric,
            name,
            value: found.as_f64().or_else(|| found["score"].as_f64())?,
            signature: found["signature"].as_str().map(str::to_owned),
        })
    };
    METRICS.iter().filter_map(score).collect()
}

fn table(scores: &[Score]) -> String {
    if scores.is_empty() {
        return String::new();
    }
    let mut text = "| test set | metric | score | signature |\n|---|---|---|---|\n".to_owned();
    for Score { split, name, value, signature, .. } in scores {
        let signature = signature.as_ref().map(|one| format!("`{}`", one.replace('|', "\\|")));
        let _ =
            writeln!(text, "| {split} | {name} | {value:.2} | {} |", signature.unwrap_or_default());
    }
    text + "\nMeasured with Taper on the weights of the run, before any quantization.\n"
}

/// Lists settings of the recipe that differ from their defaults, except paths. If `is_trained` is
/// false, because the run was imported, only settings of the model are listed.
fn recipe(config: &RunConfig, is_trained: bool) -> Result<String> {
    let sections: &[&str] = match is_trained {
        true => &["data.tokenizer.", "data.batching.", "model.", "training."],
        false => &["model."],
    };
    let mut lines = String::new();
    for one in every_difference(&RunConfig::default(), config)? {
        let is_shown = sections.iter().any(|section| one.key.starts_with(section))
            && !LEFT_OUT.iter().any(|key| one.key.starts_with(key));
        if let Some(value) = one.right.filter(|value| is_shown && !value.contains(['/', '\\'])) {
            let _ = writeln!(lines, "{} = {value}", one.key);
        }
    }
    Ok(match lines.is_empty() {
        true => String::new(),
        false => format!(" Settings that differ from the defaults:\n\n```toml\n{lines}```\n"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_and_languages_are_metadata_and_what_is_unknown_is_left_out() {
        let mut config = RunConfig { name: "a \"b\"".to_owned(), ..RunConfig::default() };
        config.data.source_language = "en".to_owned();
        config.data.target_language = "zh".to_owned();
        let library = Library { name: "ctranslate2", usage: String::new() };
        let record = json!({
            "split": "test",
            "bleu": {"score": 50.5, "signature": "nrefs:1|tok:zh"},
            "sentences": 3,
        });
        let scores = scores_of(&record);
        assert_eq!(scores.len(), 1);
        let text = front_matter(&config, &library, &scores);
        let expected = "---\nlanguage:\n- \"en\"\n- \"zh\"\nlibrary_name: ctranslate2\n\
            pipeline_tag: translation\ntags:\n- taper\nmodel-index:\n- name: \"a \\\"b\\\"\"\n  \
            results:\n  - task:\n      type: translation\n    dataset:\n      name: \"test\"\n      \
            type: \"test\"\n    metrics:\n    - type: bleu\n      value: 50.5\n      name: \"BLEU\"\n      \
            args:\n        signature: \"nrefs:1|tok:zh\"\n---\n";
        assert_eq!(text, expected);
        assert!(table(&scores).contains("| test | BLEU | 50.50 | `nrefs:1\\|tok:zh` |"));
        config.data.source_language = "source".to_owned();
        let text = front_matter(&config, &library, &[]);
        assert!(!text.contains("language:") && !text.contains("model-index"), "{text}");
        let report = json!({"train": {"pairs_kept": 7}});
        let text = described_data(&RunConfig::default(), &report);
        assert!(text.contains("Folder: `data`\n- Training: `train`, 7 pairs\n"), "{text}");
        assert_eq!(described_data(&RunConfig::default(), &Value::Null), "");
    }
}
