//! Kinds of steps of a pipeline (verbs), and their settings.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Verb of a step with its settings. In the file, the table `[steps.NAME.VERB]` has these settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub(super) enum Verb {
    /// Trains a model.
    Train(Train),
    /// Translates a text into the source language, for pairs with this text as targets.
    Backtranslate(Backtranslate),
    /// Translates the training text of a run (folder of a trained model).
    Distill(Distill),
    /// Adds to a corpus pairs that models make by translating its sources and targets.
    Diversify(Diversify),
    /// Removes from a corpus the pairs that models find unlikely.
    Filter(Filter),
    /// Scores the test sets of a run.
    Evaluate(Evaluate),
    /// Makes the vocabulary shortlist of a run.
    Shortlist(Shortlist),
    /// Writes an HTML page that translates in a browser.
    Page(Page),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Train {
    /// File of the recipe, which has the settings of the training.
    pub(super) recipe: PathBuf,
    /// Overrides of the recipe's keys, as `key=value`.
    #[serde(default)]
    pub(super) set: Vec<String>,
    /// Step or run that gives the training its first weights.
    #[serde(default)]
    pub(super) from: Option<String>,
    /// Steps whose text replaces the recipe's training text.
    #[serde(default)]
    pub(super) text: Vec<String>,
    /// Whether the recipe's own training text is used, too, in addition to that of the steps in
    /// `text`.
    #[serde(default)]
    pub(super) own_text: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Backtranslate {
    /// Step, or run, that translates.
    pub(super) run: String,
    /// Text to translate.
    pub(super) text: PathBuf,
    #[serde(default)]
    pub(super) method: Option<String>,
    #[serde(default)]
    pub(super) seed: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Distill {
    /// Steps, or runs, that translate as an ensemble.
    pub(super) runs: Vec<String>,
    #[serde(default)]
    pub(super) interpolate: bool,
    #[serde(default)]
    pub(super) beam: Option<usize>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Diversify {
    /// Steps or runs that translate in the direction of the corpus.
    pub(super) forward: Vec<String>,
    /// Steps or runs that translate in the opposite direction.
    #[serde(default)]
    pub(super) backward: Vec<String>,
    #[serde(default)]
    pub(super) beam: Option<usize>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Filter {
    /// Step or run that translates in the direction of the corpus.
    pub(super) forward: String,
    /// Step or run that translates in the opposite direction.
    pub(super) backward: String,
    /// Share of the pairs to keep, from 0 to 1.
    #[serde(default)]
    pub(super) keep: Option<f64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Evaluate {
    /// Step, or run, that is scored.
    pub(super) run: String,
    #[serde(default)]
    pub(super) set: Vec<String>,
    /// Splits to score instead of the recipe's test sets.
    #[serde(default)]
    pub(super) splits: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Shortlist {
    /// Step, or run, that gets the shortlist. Steps that need the shortlist name this step as their
    /// run.
    pub(super) run: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Page {
    /// Step, or run, that translates.
    pub(super) run: String,
    /// File of the WebAssembly module; `None` for the module that is installed beside the program.
    #[serde(default)]
    pub(super) module: Option<PathBuf>,
    #[serde(default)]
    pub(super) language: Option<String>,
}

/// Kind of result that a step needs from another step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    /// A trained model.
    Model,
    /// Pairs of sentences.
    Text,
}

impl Verb {
    /// Result of the step that other steps can need; `None` if the result is only scores or a page.
    pub(super) fn gives(&self) -> Option<Need> {
        match self {
            Self::Train(_) | Self::Shortlist(_) => Some(Need::Model),
            Self::Backtranslate(_) | Self::Distill(_) | Self::Diversify(_) | Self::Filter(_) => {
                Some(Need::Text)
            }
            Self::Evaluate(_) | Self::Page(_) => None,
        }
    }

    /// Steps and runs that the step needs: key in the file, name of the step or run, and kind of
    /// result that is needed.
    pub(super) fn needs(&self) -> Vec<(&'static str, &str, Need)> {
        let needed = |key: &'static str, need: Need| move |name| (key, name, need);
        match self {
            Self::Train(train) => {
                let from = train.from.iter().map(String::as_str).map(needed("from", Need::Model));
                let text = train.text.iter().map(String::as_str).map(needed("text", Need::Text));
                from.chain(text).collect()
            }
            Self::Backtranslate(step) => vec![("run", step.run.as_str(), Need::Model)],
            Self::Distill(step) => {
                step.runs.iter().map(String::as_str).map(needed("runs", Need::Model)).collect()
            }
            Self::Diversify(step) => {
                let forward = step.forward.iter().map(String::as_str);
                let backward = step.backward.iter().map(String::as_str);
                let forward = forward.map(needed("forward", Need::Model));
                forward.chain(backward.map(needed("backward", Need::Model))).collect()
            }
            Self::Filter(step) => vec![
                ("forward", step.forward.as_str(), Need::Model),
                ("backward", step.backward.as_str(), Need::Model),
            ],
            Self::Evaluate(step) => vec![("run", step.run.as_str(), Need::Model)],
            Self::Shortlist(step) => vec![("run", step.run.as_str(), Need::Model)],
            Self::Page(step) => vec![("run", step.run.as_str(), Need::Model)],
        }
    }

    /// Files that the step reads, each after its key.
    pub(super) fn files(&self) -> Vec<(&'static str, &PathBuf)> {
        match self {
            Self::Train(train) => vec![("recipe", &train.recipe)],
            Self::Backtranslate(step) => vec![("text", &step.text)],
            Self::Page(step) => step.module.iter().map(|module| ("module", module)).collect(),
            Self::Distill(_)
            | Self::Diversify(_)
            | Self::Filter(_)
            | Self::Evaluate(_)
            | Self::Shortlist(_) => Vec::new(),
        }
    }
}

/// Step of a pipeline, ready to run.
#[derive(Debug, Clone)]
pub struct Step {
    /// Name of the step.
    pub name: String,
    /// Folder of the step's results, or file of its page.
    pub output: PathBuf,
    /// Arguments with which the program runs the step.
    pub arguments: Vec<String>,
    /// True if the step trains a run in its folder.
    pub trains: bool,
    /// Hash of everything on which the result of the step depends: the definitions of the step and
    /// of the steps that it needs, the weights of runs that are no steps, and the files that are
    /// read.
    pub identity: String,
}

/// State of a step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Status {
    /// The step was finished in this number of seconds.
    Done(f64),
    /// The step has not run, or has not ended.
    Open,
}
