//! Checkpoint from which training continues, and the record of its training.

use std::path::PathBuf;

use anyhow::Result;
use serde_json::{Map, Value};
use taper_data::recorded_text;
use taper_trainer::{State, TrainingConfig, read_state};

use crate::config::{RunConfig, trained_with, validation_changes, validation_identity};
use crate::folder::RunFolder;

/// Checkpoint from which training continues.
pub(crate) struct Origin {
    /// Folder of the checkpoint.
    pub(crate) checkpoint: PathBuf,
    /// State recorded by the checkpoint.
    pub(crate) state: State,
    /// Identity of its validation scores; empty if unknown.
    pub(crate) validation: Map<String, Value>,
}

impl Origin {
    /// Reads the checkpoint in the folder `checkpoint` of the run in `folder`, whose config.toml is
    /// `saved`. Must be called before the text is prepared again.
    ///
    /// # Errors
    /// When its state cannot be read.
    pub(crate) fn read(folder: &RunFolder, saved: &RunConfig, checkpoint: PathBuf) -> Result<Self> {
        let state = read_state(&checkpoint)?;
        let mut validation = state.identity.validation.clone();
        // An earlier version recorded only the text, with the run.
        if validation.is_empty()
            && let Some(text) =
                recorded_text(folder.root(), &saved.task.validation_split(&saved.data))
        {
            validation = validation_identity(saved, Some(text))?;
        }
        Ok(Self { checkpoint, state, validation })
    }

    /// Configuration with which the run in `folder` was trained until now, as recorded by its last
    /// checkpoint or, if the last one is unreadable, by this one. For a run of an earlier version,
    /// `saved`.
    ///
    /// # Errors
    /// When the record is not of this version.
    pub(crate) fn trained_with(&self, folder: &RunFolder, saved: &RunConfig) -> Result<RunConfig> {
        let last = folder.last_state().ok().flatten();
        let trained = trained_with(last.as_ref().unwrap_or(&self.state), saved)?;
        Ok(trained.unwrap_or_else(|| saved.clone()))
    }

    /// Reasons why validation scores under `training`, of identity `validation`, cannot be compared
    /// with those of this checkpoint; empty if they can.
    pub(crate) fn score_changes(
        &self,
        training: &TrainingConfig,
        validation: &Map<String, Value>,
    ) -> String {
        let metric = training.early_stopping.metric;
        if self.state.early_stopping.metric.is_some_and(|watched| watched != metric) {
            return "training.early_stopping.metric".to_owned();
        }
        if self.validation.is_empty() {
            return String::new();
        }
        validation_changes(&self.validation, validation).join(", ")
    }
}
