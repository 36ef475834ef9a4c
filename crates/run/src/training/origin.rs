//! Checkpoint from which training continues, with its record of the training so far.

use std::path::PathBuf;

use anyhow::Result;
use serde_json::{Map, Value};
use taper_data::recorded_text;
use taper_trainer::{State, TrainingConfig, read_state};

use crate::config::{RunConfig, trained_with, validation_changes, validation_identity};
use crate::folder::RunFolder;

/// Checkpoint from which training continues.
pub(crate) struct Origin {
    pub(crate) checkpoint: PathBuf,
    /// State of the training that is stored in the checkpoint.
    pub(crate) state: State,
    /// Settings and text on which the validation scores so far depend; empty if they are unknown.
    pub(crate) validation: Map<String, Value>,
}

impl Origin {
    /// Reads the checkpoint in the folder `checkpoint`, which belongs to the run (folder of a
    /// training) in `folder`. `saved` is the recipe (configuration) in the run's config.toml. This
    /// must be called before the text is prepared again, because preparation replaces the record of
    /// the text.
    ///
    /// # Errors
    /// If the state of the checkpoint cannot be read.
    pub(crate) fn read(folder: &RunFolder, saved: &RunConfig, checkpoint: PathBuf) -> Result<Self> {
        let state = read_state(&checkpoint)?;
        let mut validation = state.identity.validation.clone();
        // Checkpoints of an earlier version of this program do not have these settings; then they
        // are taken from the run's folder.
        if validation.is_empty()
            && let Some(text) =
                recorded_text(folder.root(), &saved.task.validation_split(&saved.data))
        {
            validation = validation_identity(saved, Some(text))?;
        } else if !validation.is_empty()
            && let Some(trained) = trained_with(&state, saved)?
        {
            complete(&mut validation, &trained)?;
        }
        Ok(Self { checkpoint, state, validation })
    }

    /// Recipe with which the run in `folder` has been trained so far. It is recorded in the run's
    /// last checkpoint; if that cannot be read, in this checkpoint. Checkpoints of an earlier
    /// version of this program record no recipe; then `saved` is returned.
    ///
    /// # Errors
    /// If the recorded recipe cannot be read by this version of the program.
    pub(crate) fn trained_with(&self, folder: &RunFolder, saved: &RunConfig) -> Result<RunConfig> {
        let last = folder.last_state().ok().flatten();
        let trained = trained_with(last.as_ref().unwrap_or(&self.state), saved)?;
        Ok(trained.unwrap_or_else(|| saved.clone()))
    }

    /// Changed keys that make future validation scores incomparable with the scores so far; empty
    /// if they can be compared. `training`: settings of the future training. `validation`: settings
    /// and text on which the future scores depend.
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

    /// Description of the validations of a training that continues from here without a change of
    /// its validations, which is `validation`. It is returned in the form that is in the checkpoint,
    /// if there is one: an earlier version of this program may have left settings out, and the
    /// trainer would take the difference for a change and forget the scores.
    pub(crate) fn recorded_validation(&self, validation: Map<String, Value>) -> Map<String, Value> {
        let recorded = &self.state.identity.validation;
        if recorded.is_empty() { validation } else { recorded.clone() }
    }
}

/// Adds to `validation` those settings of the data on which validation scores depend and that it
/// lacks. They are missing in checkpoints of earlier versions of this program. Their values are
/// taken from `trained`, the recipe in the checkpoint.
///
/// # Errors
/// If a value cannot be written as JSON.
fn complete(validation: &mut Map<String, Value>, trained: &RunConfig) -> Result<()> {
    for (key, value) in validation_identity(trained, None)? {
        if key.starts_with("data.") {
            validation.entry(key).or_insert(value);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_an_earlier_version_did_not_record_are_no_changes() -> Result<()> {
        let mut config = RunConfig::default();
        config.data.source_prefix = "to German: ".to_owned();
        config.training.label_smoothing = 0.2;
        let now = validation_identity(&config, Some("text".to_owned()))?;
        let mut recorded = now.clone();
        recorded.remove("data.source_prefix").expect("a setting");
        complete(&mut recorded, &config)?;
        assert_eq!(recorded, now);
        // Training goes on with what was recorded, so that the trainer keeps the scores.
        let mut state = State::new(1, taper_trainer::Identity::default());
        state.identity.validation = now.clone();
        state.identity.validation.remove("data.source_prefix").expect("a setting");
        let older = state.identity.validation.clone();
        let mut origin = Origin { checkpoint: PathBuf::new(), state, validation: recorded.clone() };
        assert_eq!(origin.score_changes(&config.training, &now), "");
        assert_eq!(origin.recorded_validation(now.clone()), older);
        origin.state.identity.validation.clear();
        assert_eq!(origin.recorded_validation(now.clone()), now);
        // A recorded setting stays.
        recorded.insert("data.source_prefix".to_owned(), "other".into());
        complete(&mut recorded, &config)?;
        assert_eq!(validation_changes(&recorded, &now), ["data.source_prefix"]);
        Ok(())
    }
}
