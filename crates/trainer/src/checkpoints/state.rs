//! State of a run without its weights and the optimizer's buffers: counters, position in the data,
//! sums for logging, and hashes.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use taper_model::Routing;

use crate::exact;
use crate::{
    DivergenceMonitor, EarlyStopping, GradientNoise, Position, StopReason, TrainingConfig,
    UpdateMetrics,
};

/// Format of `state.json` that this version writes for weights in f32.
pub const FORMAT_VERSION: u32 = 2;
/// Format of `state.json` that this version writes for weights in int8.
pub const INT8_FORMAT_VERSION: u32 = 3;
/// Format of `state.json` that this version writes for adapters. It is also the newest format that
/// this version reads.
pub const ADAPTERS_FORMAT_VERSION: u32 = 4;

/// For this many updates at the start of a run, the running mean of losses is the plain mean of all
/// losses so far. After that, it is an exponential moving average.
const SPIKE_WINDOW: u64 = 100;

/// Recipe (configuration), tokenizer and validation of a run, as the caller describes them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// Hash of the configuration in checkpoints of format 1; empty in newer formats, which have
    /// `recipe`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub config_hash: String,
    /// Hash of the tokenizer. A checkpoint can be loaded only with its own tokenizer.
    pub tokenizer_hash: String,
    /// Keys of the recipe on which the weights depend, with their values. The caller compares them
    /// with its own recipe, because the weights can be loaded only into the same model. Empty in
    /// checkpoints of format 1.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub recipe: Map<String, Value>,
    /// Description of the validation: the text, and the method of measurement. Scores with
    /// different descriptions cannot be compared. Empty if it is unknown.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub validation: Map<String, Value>,
}

/// Checkpoint of another run from which weights were taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parent {
    /// Directory of the checkpoint when it was read.
    pub path: PathBuf,
    /// Number of updates after which the checkpoint was saved.
    pub step: u64,
    /// SHA-256 of the file of the checkpoint's weights, in hexadecimal.
    pub sha256: String,
}

/// Frozen weights that the adapters in a checkpoint change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Base {
    /// Size and hash of the file with the frozen weights: [`BASE_FILE`](crate::BASE_FILE), next to
    /// the run's checkpoints.
    pub file: FileEntry,
    /// Factor by which the product of an adapter's two matrices is multiplied before it is added to
    /// the frozen weight.
    #[serde(with = "exact::number")]
    pub scale: f64,
}

/// Hash and size of a file of a checkpoint when it was saved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileEntry {
    /// SHA-256 in hexadecimal.
    pub sha256: String,
    /// Size in bytes.
    pub bytes: u64,
}

/// Sums over the updates since the last log event. They are part of the state, so that an
/// interruption does not change logged averages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Window {
    /// Number of updates.
    pub updates: u64,
    /// Number of target tokens.
    pub tokens: u64,
    /// Number of target tokens that were predicted correctly.
    pub correct: u64,
    /// Sum of label-smoothed cross entropy over tokens.
    #[serde(with = "exact::number")]
    pub smoothed_sum: f64,
    /// Sum of cross entropy over tokens.
    #[serde(with = "exact::number")]
    pub nll_sum: f64,
    /// Sum of R-Drop's divergence over tokens. It is not in the file of a run without R-Drop.
    #[serde(with = "exact::number", default, skip_serializing_if = "is_zero")]
    pub divergence_sum: f64,
    /// Routing of tokens to experts. It is not in the file of a run without experts.
    #[serde(default, skip_serializing_if = "Routing::is_empty")]
    pub routing: Routing,
    /// Sum of gradient norms over updates.
    #[serde(with = "exact::number")]
    pub gradient_norm_sum: f64,
    /// Sums of estimates of the gradients' noise. They are not in the file of a run with one
    /// micro-batch per update.
    #[serde(default, skip_serializing_if = "GradientNoise::is_zero")]
    pub noise: GradientNoise,
    /// Seconds spent in the updates.
    #[serde(with = "exact::number")]
    pub seconds: f64,
}

impl Window {
    /// Adds one update.
    pub(crate) fn add(&mut self, measured: &UpdateMetrics, seconds: f64) {
        self.updates += 1;
        self.tokens += measured.tokens;
        self.correct += measured.correct;
        self.smoothed_sum += measured.smoothed_sum;
        self.nll_sum += measured.nll_sum;
        self.divergence_sum += measured.divergence_sum;
        self.routing += measured.routing;
        self.gradient_norm_sum += measured.gradient_norm;
        self.noise += measured.noise;
        self.seconds += seconds;
    }
}

/// State of a run after a number of updates.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// Format of the state file, `state.json`.
    pub format_version: u32,
    /// Number of updates.
    pub step: u64,
    /// Position of the next micro-batch in the data.
    pub position: Position,
    /// Seed of the run. All random numbers are functions of the seed and of the place where they
    /// are used, so there is no other state of random numbers.
    pub seed: u64,
    /// Number of target tokens in all updates.
    pub tokens: u64,
    /// Number of updates that were skipped because the loss or a gradient was not finite, or the
    /// loss was too high.
    pub skipped: u64,
    /// Number of updates that were skipped since the last one that was made.
    pub skipped_in_a_row: u32,
    /// Running mean of the loss per token; `None` if `training.spike_factor` is 0.
    #[serde(with = "exact::option", default, skip_serializing_if = "Option::is_none")]
    pub mean_loss: Option<f64>,
    /// Cross entropy of the last update, in nats per predicted token or class. `None` before the
    /// first update, and in files of older versions.
    #[serde(with = "exact::option", default, skip_serializing_if = "Option::is_none")]
    pub nll: Option<f64>,
    /// Best validation, and number of validations since then.
    pub early_stopping: EarlyStopping,
    /// Record of the last validations if their loss is far above that of random guesses; otherwise
    /// `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub astray: Option<DivergenceMonitor>,
    /// Number of updates at the last validation; `None` before the first validation.
    pub validated_at: Option<u64>,
    /// Validation score by the metric of early stopping, if it was measured after exactly `step`
    /// updates.
    #[serde(with = "exact::option")]
    pub score: Option<f64>,
    /// Sums since the last log event.
    pub window: Window,
    /// Total seconds in the training loop, including those before interruptions.
    #[serde(with = "exact::number")]
    pub training_seconds: f64,
    /// Whether the checkpoint was saved only because training was interrupted or could not
    /// continue. Such a checkpoint is used only to resume the run. It is ignored when checkpoints
    /// are chosen to be kept or averaged, because an interruption must not change this choice.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interim: bool,
    /// Recipe, tokenizer and validation of the run.
    pub identity: Identity,
    /// Checkpoint from which the first weights were taken; `None` if they were random.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Parent>,
    /// Checkpoint whose weights were rounded to int8; `None` if the weights are not in int8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub int8_of: Option<Parent>,
    /// Frozen weights that the checkpoint's adapters change; `None` if it has no adapters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<Base>,
    /// Sizes and hashes of the checkpoint's other files, by name.
    pub files: BTreeMap<String, FileEntry>,
    /// SHA-256 of the content of the state file with an empty `checksum`.
    pub checksum: String,
}

impl State {
    /// State of a run before its first update.
    #[must_use]
    pub fn new(seed: u64, identity: Identity) -> Self {
        Self {
            format_version: FORMAT_VERSION,
            step: 0,
            position: Position::default(),
            seed,
            tokens: 0,
            skipped: 0,
            skipped_in_a_row: 0,
            mean_loss: None,
            nll: None,
            early_stopping: EarlyStopping::default(),
            astray: None,
            validated_at: None,
            score: None,
            window: Window::default(),
            training_seconds: 0.0,
            interim: true,
            identity,
            parent: None,
            int8_of: None,
            base: None,
            files: BTreeMap::new(),
            checksum: String::new(),
        }
    }

    /// Format in which the state is written.
    pub(crate) fn format(&self) -> u32 {
        match (&self.base, &self.int8_of) {
            (Some(_), _) => ADAPTERS_FORMAT_VERSION,
            (None, Some(_)) => INT8_FORMAT_VERSION,
            (None, None) => FORMAT_VERSION,
        }
    }

    /// Removes the records of validation scores, because the scores so far cannot be compared with
    /// later ones.
    pub(crate) fn forget_scores(&mut self) {
        self.early_stopping = EarlyStopping::default();
        (self.astray, self.score) = (None, None);
    }

    /// Reason why a run in this state makes no more updates under `config`; `None` if it continues.
    #[must_use]
    pub fn reason_to_stop(&self, config: &TrainingConfig) -> Option<StopReason> {
        if self.early_stopping.is_over(&config.early_stopping) {
            Some(StopReason::EarlyStopping)
        } else if config.max_updates > 0 && self.step >= config.max_updates {
            Some(StopReason::MaxUpdates)
        } else if config.max_epochs > 0 && self.position.epoch >= config.max_epochs {
            Some(StopReason::MaxEpochs)
        } else if config.max_minutes > 0.0 && self.training_seconds >= config.max_minutes * 60.0 {
            Some(StopReason::MaxMinutes)
        } else {
            None
        }
    }

    /// Returns the limit for the loss per token: an update with a higher loss is skipped. The limit
    /// is infinite if `spike_factor` is 0 or no loss is known yet.
    pub(crate) fn loss_limit(&self, spike_factor: f64) -> f64 {
        self.mean_loss
            .filter(|_| spike_factor > 0.0)
            .map_or(f64::INFINITY, |mean| spike_factor * mean)
    }

    /// Adds the loss per token of the last update to the running mean, if `spike_factor` is not 0.
    /// `self.step` already includes that update.
    pub(crate) fn follow_loss(&mut self, spike_factor: f64, loss: f64) {
        let count = self.step.min(SPIKE_WINDOW) as f64;
        self.mean_loss = (spike_factor > 0.0)
            .then(|| self.mean_loss.map_or(loss, |mean| mean + (loss - mean) / count));
    }
}

fn is_zero(value: &f64) -> bool {
    value.to_bits() == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_comes_back_with_the_same_bits() {
        let mut state = State::new(7, Identity::default());
        for value in
            [0.1 + 0.2, 1.0 / 3.0, f64::MIN_POSITIVE, f64::INFINITY, -0.0, 123_456_789.123_456_79]
        {
            state.window.smoothed_sum = value;
            (state.score, state.nll) = (Some(value), Some(value));
            let text = serde_json::to_string(&state).unwrap();
            let back: State = serde_json::from_str(&text).unwrap();
            assert_eq!(back.window.smoothed_sum.to_bits(), value.to_bits(), "{text}");
            for option in [back.score, back.nll] {
                assert_eq!(option.map(f64::to_bits), Some(value.to_bits()), "{text}");
            }
        }
    }
}
