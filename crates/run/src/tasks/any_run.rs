//! Loaded runs whose task is known only from their recipe.

use std::path::Path;

use anyhow::Result;
use taper_data::{SpelledSpecial, Task, TokenizerPair};

use super::{Done, Items, Predictions, TaskModel, with_model};
use crate::{LoadSettings, LoadedRun, Notice};

/// Loaded run of any task, for predictions.
pub trait AnyRun {
    /// Tokenizers of the run.
    fn tokenizers(&self) -> &TokenizerPair;

    /// Sets the treatment of special tokens that a text spells to `rule`.
    fn spell(&mut self, rule: SpelledSpecial);

    /// See [`TaskModel::notice_on`].
    fn notice_on(&self, lines: &[String], path: &Path) -> Option<Notice>;

    /// See [`TaskModel::predict_each`].
    ///
    /// # Errors
    /// When the model fails.
    fn predict_each(&self, items: &Items<'_>, done: Done<'_>) -> Predictions;

    /// See [`TaskModel::draw_attention`].
    ///
    /// # Errors
    /// When it cannot be drawn.
    fn draw_attention(&self, image: &Path, to: &Path) -> Result<()>;
}

impl<M: TaskModel> AnyRun for LoadedRun<M> {
    fn tokenizers(&self) -> &TokenizerPair {
        &self.tokenizers
    }

    fn spell(&mut self, rule: SpelledSpecial) {
        self.tokenizers = self.tokenizers.with_spelled(rule);
    }

    fn notice_on(&self, lines: &[String], path: &Path) -> Option<Notice> {
        M::notice_on(&self.config, lines, path)
    }

    fn predict_each(&self, items: &Items<'_>, done: Done<'_>) -> Predictions {
        M::predict_each(self, items, done)
    }

    fn draw_attention(&self, image: &Path, to: &Path) -> Result<()> {
        M::draw_attention(self, image, to)
    }
}

/// Loads the run at `root`, of any task.
///
/// # Errors
/// See [`LoadedRun::open`].
pub fn open(task: Task, root: &Path, settings: &LoadSettings) -> Result<Box<dyn AnyRun>> {
    with_model!(task, M => Ok(Box::new(LoadedRun::<M>::open(root, settings)?)))
}
