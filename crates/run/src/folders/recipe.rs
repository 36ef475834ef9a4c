//! Properties of a task beside `[model]`, converted between a recipe and a folder's `config.json`:
//! labels, lengths, images.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value, json};
use taper_data::{Corpora, ImageFormat, Pairs, Task, Tokenizer};

use super::family::{Architecture, Family};
use super::generation;
use super::preprocessor::Preprocessor;
use super::tokens::Exported;
use super::weights::Weights;
use crate::config::{RunConfig, usual_tokenizer};
use crate::generation::beginning;

/// Recipe of a run called `name` that receives its weights, without data yet.
pub(super) fn without_data(name: String, task: Task) -> RunConfig {
    let mut recipe = RunConfig { name, task, ..RunConfig::default() };
    recipe.dtype = "f32".to_owned();
    recipe.data.validation = Corpora::default();
    recipe.data.test = Corpora::default();
    recipe.training.label_smoothing = 0.0;
    recipe
}

/// Sets the properties of the task from the folder `source`, after the keys of the family.
///
/// # Errors
/// With the key of `config.json` that requests an unsupported property, or the file that is
/// damaged.
pub(super) fn describe(
    recipe: &mut RunConfig,
    source: &Path,
    (family, architecture): (&Family, &Architecture),
    keys: &Value,
    weights: &Weights,
) -> Result<()> {
    let positions = recipe.model.max_positions;
    let has = |recipe: &RunConfig, parameter: &str| {
        family.tensor(parameter, recipe).is_some_and(|name| weights.has(&name))
    };
    let labels = |recipe: &RunConfig, head: &str| {
        let rows = family.tensor(head, recipe).and_then(|name| weights.shape(&name));
        labels(keys, rows.and_then(|shape| shape.first().copied()))
    };
    match recipe.task {
        Task::LanguageModel => recipe.data.text.block_length = positions,
        Task::MaskedLanguageModel => {
            recipe.data.text.block_length = positions;
            // Without a head, the pooler is kept for models trained from this one.
            let of = if architecture.head.is_none() { "pooler" } else { "next_sentence" };
            recipe.data.masked.next_sentence = has(recipe, &format!("{of}.weight"));
        }
        Task::Classification => {
            recipe.data.labelled.labels = labels(recipe, "classes.weight")?;
            recipe.data.labelled.max_tokens = positions;
            // No key says whether it was trained on pairs.
            recipe.data.labelled.pairs = Pairs::Auto;
        }
        Task::Tagging => {
            recipe.data.labelled.labels = labels(recipe, "tags.weight")?;
            recipe.data.labelled.max_tokens = positions;
        }
        Task::QuestionAnswering => {
            let questions = &mut recipe.data.questions;
            questions.max_tokens = questions.max_tokens.min(positions);
            // Most of the positions, if there are few, are for the context.
            questions.max_question_tokens = questions.max_question_tokens.min(positions / 4).max(1);
        }
        Task::ImageClassification => {
            recipe.data.images.format = ImageFormat::Folders;
            recipe.data.images.labels = labels(recipe, "classes.weight")?;
            Preprocessor::read(source)?.describe(&mut recipe.data.images)?;
        }
        Task::Translation => {
            recipe.data.cleaning.max_tokens = positions.saturating_sub(1).max(1);
            generation::describe(recipe, source, keys)?;
        }
        Task::Captions | Task::ImageText | Task::InContextRegression => {}
    }
    Ok(())
}

/// Sets the languages of a translation model.
pub(super) fn speak(recipe: &mut RunConfig, [source, target]: [String; 2]) {
    recipe.evaluation.tokenize = usual_tokenizer(&target);
    recipe.data.source_language = source;
    recipe.data.target_language = target;
}

/// Labels of a classifier in the order of its classes; its head has `rows` classes. Transformers
/// calls classes without names LABEL_0, LABEL_1 and so on, and omits the names of two such classes.
fn labels(keys: &Value, rows: Option<usize>) -> Result<Vec<String>> {
    if let Some(kind) = keys["problem_type"].as_str()
        && kind != "single_label_classification"
    {
        bail!("problem_type is {kind}: a classifier of ours gives each text one label");
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
            .with_context(|| format!("id2label has {number:?} where a number is expected"))?;
        let name = name.as_str().map_or_else(|| name.to_string(), str::to_owned);
        by_number.insert(number, name);
    }
    if !by_number.keys().copied().eq(0..names.len()) {
        bail!("id2label has not the labels from 0 on");
    }
    if by_number.len() < 2 {
        bail!("id2label has one label: what it says of a text is a number, and no label");
    }
    Ok(by_number.into_values().collect())
}

/// Length in tokens of the longest text that the model of a recipe reads.
pub(super) fn longest(recipe: &RunConfig) -> usize {
    let data = &recipe.data;
    let longest = match recipe.task {
        Task::MaskedLanguageModel => data.text.block_length,
        Task::Classification | Task::Tagging => data.labelled.max_tokens,
        Task::QuestionAnswering => data.questions.max_tokens,
        _ => recipe.model.max_positions,
    };
    longest.min(recipe.model.max_positions)
}

/// Use of tokens by a model.
pub(super) fn tokens_of<'a>(recipe: &'a RunConfig, tokenizer: &Tokenizer) -> Exported<'a> {
    if recipe.task == Task::Translation {
        let data = &recipe.data;
        return Exported::Translates {
            decoding: &recipe.decoding,
            languages: [&data.source_language, &data.target_language],
            longest: longest(recipe),
        };
    }
    if recipe.task != Task::LanguageModel {
        return Exported::Reads { hidden: recipe.task == Task::MaskedLanguageModel };
    }
    let start = match beginning(tokenizer, recipe.data.text.documents).as_deref() {
        Ok(&[start]) => start,
        _ => tokenizer.end(),
    };
    Exported::Writes { start, sampling: &recipe.decoding.sampling }
}

/// Writes the properties of a task into `config.json`.
pub(super) fn express(recipe: &RunConfig, config: &mut Map<String, Value>) {
    let labels = match recipe.task {
        Task::Classification | Task::Tagging => &recipe.data.labelled.labels,
        Task::ImageClassification => &recipe.data.images.labels,
        _ => return,
    };
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
        let of = |keys: Value, rows| labels(&keys, rows).map_err(|error| error.to_string());
        let named = |names: &[&str]| Ok(names.iter().map(|&name| name.to_owned()).collect());
        assert_eq!(of(json!({}), Some(2)), named(&["LABEL_0", "LABEL_1"]));
        assert_eq!(of(json!({"id2label": null}), None), named(&["LABEL_0", "LABEL_1"]));
        assert_eq!(of(json!({"num_labels": 3}), None), named(&["LABEL_0", "LABEL_1", "LABEL_2"]));
        let given = json!({"id2label": {"1": "b", "0": "a"}, "label2id": null});
        assert_eq!(of(given, Some(2)), named(&["a", "b"]));
        let eleven: Map<String, Value> =
            (0..11).map(|number| (number.to_string(), json!(format!("n{number}")))).collect();
        assert_eq!(of(json!({"id2label": eleven}), None).unwrap()[10], "n10");
        for (keys, rows, said) in [
            (json!({"id2label": {"0": "a", "2": "b"}}), Some(2), "from 0 on"),
            (json!({"id2label": {"zero": "a", "1": "b"}}), Some(2), "\"zero\""),
            (json!({"id2label": {"0": "a"}}), Some(1), "one label"),
            (json!({"id2label": 7}), Some(2), "id2label is 7"),
            (json!({}), Some(1), "fewer than two classes"),
            (json!({"problem_type": "regression"}), Some(2), "problem_type is regression"),
        ] {
            let error = of(keys.clone(), rows).unwrap_err();
            assert!(error.contains(said), "{keys}: {error}");
        }
    }
}
