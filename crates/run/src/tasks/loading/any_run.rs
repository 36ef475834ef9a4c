//! Loaded runs (trained models with their tokenizers) whose task is only known when their recipe
//! (configuration) is read.

use std::any::Any;
use std::path::Path;

use anyhow::{Context, Result};
use taper_data::{SpelledSpecial, Task, TokenizerPair};
use taper_ops::ParameterStore;

use crate::attention::{AttentionMap, require_words};
use crate::tasks::{Items, OnProgress, Predictions, TaskModel, require_task, with_model};
use crate::{LoadSettings, LoadedRun, Notice, RunConfig};

/// Loaded run of any task.
pub trait AnyRun: Any + Send + Sync {
    /// Configuration of the run.
    fn config(&self) -> &RunConfig;

    /// Tokenizers of the run.
    fn tokenizers(&self) -> &TokenizerPair;

    /// Path of the checkpoint from which the weights were loaded.
    fn checkpoint(&self) -> &Path;

    /// Number of updates after which the checkpoint was saved.
    fn step(&self) -> u64;

    /// Parameters of the model.
    fn parameters(&self) -> &ParameterStore;

    /// Sets how a text that contains the name of a special token is treated.
    fn spell(&mut self, rule: SpelledSpecial);

    /// See [`TaskModel::notice_on`].
    fn notice_on(&self, lines: &[String], path: &Path) -> Option<Notice>;

    /// See [`TaskModel::predict_each`].
    ///
    /// # Errors
    /// If the model fails.
    fn predict_each(&self, items: &Items<'_>, done: OnProgress<'_>) -> Predictions;

    /// See [`TaskModel::draw_attention`].
    ///
    /// # Errors
    /// If the attention cannot be drawn.
    fn draw_attention(&self, image: &Path, to: &Path) -> Result<()>;

    /// See [`AttentionMap::of_run`].
    ///
    /// # Errors
    /// If the task has no attention between words, the text cannot be read, or no layer has
    /// attention weights.
    fn attention(&self, text: &str, target: Option<&str>) -> Result<AttentionMap>;

    /// See [`TaskModel::sentence_vectors`].
    ///
    /// # Errors
    /// If a text cannot be read, or models of the task have no vectors of texts.
    fn sentence_vectors(&self, texts: &[String]) -> Result<Vec<Vec<f32>>>;
}

impl dyn AnyRun {
    /// Returns this run as a run of the model type `M`.
    ///
    /// # Errors
    /// If the run has another task than `M`. As advice, the error lists what a run of its task can
    /// be used for.
    pub fn with_model<M: TaskModel>(&self) -> Result<&LoadedRun<M>> {
        require_task(self.config(), M::TASK)?;
        let run: &dyn Any = self;
        run.downcast_ref().context("the run's model does not belong to its task")
    }
}

impl<M: TaskModel> AnyRun for LoadedRun<M> {
    fn config(&self) -> &RunConfig {
        &self.config
    }

    fn checkpoint(&self) -> &Path {
        &self.checkpoint
    }

    fn step(&self) -> u64 {
        self.state.step
    }

    fn parameters(&self) -> &ParameterStore {
        self.model.parameters()
    }

    fn tokenizers(&self) -> &TokenizerPair {
        &self.tokenizers
    }

    fn spell(&mut self, rule: SpelledSpecial) {
        self.tokenizers = self.tokenizers.with_spelled(rule);
    }

    fn notice_on(&self, lines: &[String], path: &Path) -> Option<Notice> {
        M::notice_on(&self.config, lines, path)
    }

    fn predict_each(&self, items: &Items<'_>, done: OnProgress<'_>) -> Predictions {
        M::predict_each(self, items, done)
    }

    fn draw_attention(&self, image: &Path, to: &Path) -> Result<()> {
        M::draw_attention(self, image, to)
    }

    fn attention(&self, text: &str, target: Option<&str>) -> Result<AttentionMap> {
        require_words(self.config.task, target)?;
        M::attention(self, text, target)
    }

    fn sentence_vectors(&self, texts: &[String]) -> Result<Vec<Vec<f32>>> {
        M::sentence_vectors(self, texts)
    }
}

/// Loads the run at `root`, whose task is `task`.
///
/// # Errors
/// See [`LoadedRun::open`].
pub fn open(task: Task, root: &Path, settings: &LoadSettings) -> Result<Box<dyn AnyRun>> {
    with_model!(task, M => Ok(Box::new(LoadedRun::<M>::open(root, settings)?)))
}
