//! Descriptions of runs (trained models) for clients.

use std::sync::Arc;
use std::time::UNIX_EPOCH;

use serde::{Serialize, Serializer};
use taper_data::Direction;
use taper_run::LoadedRun;
use taper_run::tasks::TaskModel;

use crate::engine::{ChatTemplate, Verbs};

/// Description of a run for clients.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunInfo {
    /// Name of the run, which is the name of its folder.
    pub name: String,
    /// Name of the run's task.
    pub task: String,
    /// Properties of a translation model; `None` for other tasks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub translation: Option<TranslationInfo>,
    /// Labels of a classifier.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// Whether a classifier of texts labels pairs of texts, written with a tab between them.
    pub pairs: bool,
    /// Largest number of tokens that a prediction of a language model depends on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<usize>,
    /// Chat template of a language model, or the reason why it cannot be used; `None` without a
    /// template. Clients see `true` if the template can be used.
    #[serde(rename = "chats", serialize_with = "whether_usable")]
    pub(crate) chat: Option<Result<Arc<ChatTemplate>, String>>,
    /// Number of the model's parameters.
    pub parameters: usize,
    /// Time at which the weights were saved, in seconds since 1970.
    pub created: u64,
    /// Whether the model is on the CPU.
    #[serde(skip)]
    pub(crate) is_on_cpu: bool,
    /// Kinds of requests that the run answers.
    #[serde(skip)]
    pub(crate) verbs: Verbs,
}

/// Serializes `chat` as a boolean: `true` if it is a template that can be used.
fn whether_usable<S: Serializer>(
    chat: &Option<Result<Arc<ChatTemplate>, String>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_bool(matches!(chat, Some(Ok(_))))
}

/// Description of a translation model for clients.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TranslationInfo {
    /// Code of the source language.
    pub source: String,
    /// Code of the target language.
    pub target: String,
    /// Directions of a run that has several; empty for a run that has one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub directions: Vec<Direction>,
    /// Whether the model aligns words.
    pub aligns: bool,
    /// Number of hypotheses of the model's search.
    pub beam: usize,
}

impl TranslationInfo {
    /// Returns all directions of the run; there is at least one.
    pub(crate) fn all(&self) -> Vec<Direction> {
        match self.directions.as_slice() {
            [] => vec![Direction::new(&self.source, &self.target)],
            several => several.to_vec(),
        }
    }
}

impl RunInfo {
    /// Describes the properties that every run has. The properties of single tasks are left empty.
    pub(crate) fn from_run<M: TaskModel>(run: &LoadedRun<M>, name: &str) -> Self {
        let saved = run.checkpoint.metadata().and_then(|metadata| metadata.modified()).ok();
        let created = saved.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        Self {
            name: name.to_owned(),
            task: M::TASK.to_string(),
            translation: None,
            labels: Vec::new(),
            pairs: false,
            context: None,
            chat: None,
            parameters: run.model.parameters().len(),
            created: created.map_or(0, |time| time.as_secs()),
            is_on_cpu: run.model.parameters().device().is_cpu(),
            verbs: Verbs::default(),
        }
    }

    /// Whether `other` describes the same run. The weights may have been saved at another time.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        *self == Self { created: self.created, ..other.clone() }
    }
}
