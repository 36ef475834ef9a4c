//! Settings outside the section `[model]` of a recipe (Taper's configuration), converted between
//! the recipe and a folder of the library Transformers: labels, lengths, images, tokens.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value, json};
use taper_data::{Corpora, ImagesConfig, Task, Tokenizer};

use super::family::{Architecture, Family};
use super::generation;
use super::keys;
use super::preprocessor::Preprocessor;
use super::tokens::Exported;
use super::weights::Weights;
use crate::config::{RunConfig, usual_tokenizer};
use crate::generation::beginning;
use crate::tasks::{self, ImportedFolder, entry, usual_tokens};

/// Whether the keys of `family` for a `config.json` can express which matrices of embeddings and
/// output are tied in `recipe`.
pub(super) fn expresses_ties(family: &Family, recipe: &RunConfig) -> bool {
    let (mut config, mut expressed) = (Map::new(), without_data(String::new(), recipe.task));
    keys::write(family.keys, recipe, &mut config);
    (family.base)(&mut expressed);
    let is_read = keys::read(family.keys, &Value::Object(config), &mut expressed).is_ok();
    is_read && expressed.model.tied == recipe.model.tied
}

/// Recipe called `name` for a model whose weights do not come from training by Taper. It names no
/// data.
pub(crate) fn without_data(name: String, task: Task) -> RunConfig {
    let mut recipe = RunConfig { name, task, ..RunConfig::default() };
    recipe.dtype = "f32".to_owned();
    recipe.data.validation = Corpora::default();
    recipe.data.test = Corpora::default();
    recipe.training.label_smoothing = 0.0;
    recipe
}

/// Folder of the library Transformers from which the settings of a task are read.
pub(super) struct Described<'a> {
    pub(super) source: &'a Path,
    pub(super) family: &'a Family,
    pub(super) architecture: &'a Architecture,
    /// Content of the folder's `config.json`.
    pub(super) keys: &'a Value,
    pub(super) weights: &'a Weights,
}

impl ImportedFolder for Described<'_> {
    fn has(&self, recipe: &RunConfig, parameter: &str) -> bool {
        self.family.tensor(parameter, recipe).is_some_and(|name| self.weights.has(&name))
    }

    fn has_head(&self) -> bool {
        self.architecture.head.is_some()
    }

    fn labels(&self, recipe: &RunConfig, head: &str) -> Result<Vec<String>> {
        let shape = self.family.tensor(head, recipe).and_then(|name| self.weights.shape(&name));
        labels(self.keys, shape.and_then(|shape| shape.first().copied()))
    }

    fn describe_images(&self, images: &mut ImagesConfig) -> Result<()> {
        Preprocessor::read(self.source)?.describe(images)
    }

    fn describe_search(&self, recipe: &mut RunConfig) -> Result<()> {
        match entry(recipe.task).translates {
            true => generation::describe(recipe, self.source, self.keys),
            false => generation::describe_text(recipe, self.source, self.keys),
        }
    }
}

/// Sets the source and the target language of a translation model, and sets the tokenizer of BLEU
/// to the default for the target language.
pub(super) fn speak(recipe: &mut RunConfig, [source, target]: [String; 2]) {
    recipe.evaluation.tokenize = usual_tokenizer(&target);
    recipe.data.source_language = source;
    recipe.data.target_language = target;
}

/// Labels of a classifier in the order of its classes. `keys` is its `config.json`, and `rows` is
/// the number of rows in its output matrix, if that exists. Transformers names classes without
/// labels LABEL_0, LABEL_1 and so on; if there are two such classes, it does not save these names.
fn labels(keys: &Value, rows: Option<usize>) -> Result<Vec<String>> {
    if let Some(kind) = keys["problem_type"].as_str()
        && kind != "single_label_classification"
    {
        bail!("problem_type is {kind}: classifiers here give each text one label");
    }
    let names = match &keys["id2label"] {
        Value::Null => None,
        Value::Object(names) => Some(names).filter(|names| !names.is_empty()),
        other => bail!("id2label is {other}, expected the label of each number"),
    };
    let Some(names) = names else {
        let count = keys["num_labels"].as_u64().and_then(|count| usize::try_from(count).ok());
        return match rows.or(count).unwrap_or(2) {
            ..2 => bail!("the classifier has fewer than two classes: it gives no labels"),
            count => Ok((0..count).map(|class| format!("LABEL_{class}")).collect()),
        };
    };
    let mut by_number = BTreeMap::new();
    for (number, name) in names {
        let number: usize = number
            .trim()
            .parse()
            .with_context(|| format!("id2label has {number:?}, but a number is expected"))?;
        let name = name.as_str().map_or_else(|| name.to_string(), str::to_owned);
        by_number.insert(number, name);
    }
    if !by_number.keys().copied().eq(0..names.len()) {
        bail!("id2label does not have all labels from 0 on");
    }
    if by_number.len() < 2 {
        bail!("id2label has one label: the model predicts a number for a text, not a label");
    }
    Ok(by_number.into_values().collect())
}

/// Number of tokens in the longest text that the model of a recipe reads.
pub(super) fn longest(recipe: &RunConfig) -> usize {
    let positions = recipe.model.max_positions;
    // An encoder of texts may have been trained on shorter token sequences than it has positions
    // for.
    match recipe.task.reads_text() && entry(recipe.task).marks_texts() {
        true => usual_tokens(recipe).min(positions),
        false => positions,
    }
}

/// How the exported model of a recipe uses tokens.
pub(super) fn tokens_of<'a>(recipe: &'a RunConfig, tokenizer: &Tokenizer) -> Exported<'a> {
    let task = entry(recipe.task);
    if task.translates {
        let data = &recipe.data;
        return Exported::Translates {
            decoding: &recipe.decoding,
            languages: [&data.source_language, &data.target_language],
            longest: longest(recipe),
        };
    }
    if !task.generates {
        return Exported::Reads { hidden: task.hides_tokens };
    }
    let start = match beginning(tokenizer, recipe.data.text.documents).as_deref() {
        Ok(&[start]) => start,
        _ => tokenizer.end(),
    };
    Exported::Writes { start, decoding: &recipe.decoding }
}

/// Adds the labels of a classifier to `config`, the keys of a `config.json`; for other tasks, adds
/// nothing.
pub(super) fn express(recipe: &RunConfig, config: &mut Map<String, Value>) {
    let Some((labels, _)) = tasks::labels(recipe) else { return };
    let names = labels.iter().enumerate();
    let by_number: BTreeMap<usize, &String> = names.clone().collect();
    let by_name: BTreeMap<&String, usize> = names.map(|(number, name)| (name, number)).collect();
    config.insert("id2label".to_owned(), json!(by_number));
    config.insert("label2id".to_owned(), json!(by_name));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_those_of_transformers() {
        let labels_in = |keys: Value, rows| labels(&keys, rows).map_err(|error| error.to_string());
        let named = |names: &[&str]| Ok(names.iter().map(|&name| name.to_owned()).collect());
        assert_eq!(labels_in(json!({}), Some(2)), named(&["LABEL_0", "LABEL_1"]));
        assert_eq!(labels_in(json!({"id2label": null}), None), named(&["LABEL_0", "LABEL_1"]));
        assert_eq!(
            labels_in(json!({"num_labels": 3}), None),
            named(&["LABEL_0", "LABEL_1", "LABEL_2"])
        );
        let given = json!({"id2label": {"1": "b", "0": "a"}, "label2id": null});
        assert_eq!(labels_in(given, Some(2)), named(&["a", "b"]));
        let eleven: Map<String, Value> =
            (0..11).map(|number| (number.to_string(), json!(format!("n{number}")))).collect();
        assert_eq!(labels_in(json!({"id2label": eleven}), None).unwrap()[10], "n10");
        for (keys, rows, phrase) in [
            (json!({"id2label": {"0": "a", "2": "b"}}), Some(2), "from 0 on"),
            (json!({"id2label": {"zero": "a", "1": "b"}}), Some(2), "\"zero\""),
            (json!({"id2label": {"0": "a"}}), Some(1), "one label"),
            (json!({"id2label": 7}), Some(2), "id2label is 7"),
            (json!({}), Some(1), "fewer than two classes"),
            (json!({"problem_type": "regression"}), Some(2), "problem_type is regression"),
        ] {
            let error = labels_in(keys.clone(), rows).unwrap_err();
            assert!(error.contains(phrase), "{keys}: {error}");
        }
    }
}
