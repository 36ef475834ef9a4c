//! Events of training, as values that serialise to one JSON line each.
//!
//! Everything measured by the clock is in the field `timing`, so that the other fields of two runs
//! can be compared.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use taper_model::Routing;

use crate::{BoxError, NormsPerLayer, ProcessTime, Scores};

/// Measurements by the clock.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Timing {
    /// Seconds in the training loop, in total over resumes.
    pub elapsed_seconds: f64,
    /// Target tokens trained on per second since the previous log event; `None` if no tokens were
    /// trained on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_per_second: Option<f64>,
    /// Times of each process, if there are several: in the updates since the last log event or, in
    /// the event [`Event::Stopped`], in all updates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<ProcessTime>,
}

/// Reason why training ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The last update was reached.
    MaxUpdates,
    /// The last pass over the data was completed.
    MaxEpochs,
    /// The time was used up.
    MaxMinutes,
    /// The watched metric did not improve for long enough.
    EarlyStopping,
    /// The caller requested the interruption. A run that is resumed after it gives the same result
    /// as an uninterrupted run.
    Interrupted,
}

/// How evenly tokens are routed to experts.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ExpertLoad {
    /// Share of routed tokens that were dropped because they exceeded the capacity of an expert.
    pub dropped: f64,
    /// Number of tokens of the busiest expert of a layer, divided by the number that each expert
    /// would have if all had equally many; the mean over layers and updates.
    pub busiest: f64,
}

impl ExpertLoad {
    /// Returns the load of experts; `None` if no tokens were routed.
    pub(crate) fn from_routing(routing: Routing) -> Option<Self> {
        let share = |count: u64| count as f64 / routing.routed as f64;
        (!routing.is_empty())
            .then(|| Self { dropped: share(routing.dropped), busiest: share(routing.busiest) })
    }
}

/// Example of the model's output on the validation text.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// Input of the model.
    pub source: String,
    /// Expected output.
    pub reference: String,
    /// Output of the model.
    pub hypothesis: String,
}

/// Event of a training.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// Averages over the updates since the last log event.
    Log {
        /// Updates made.
        step: u64,
        /// Pass over the data, from 0, to which the next micro-batch belongs.
        epoch: u64,
        /// Label-smoothed cross entropy per target token.
        loss: f64,
        /// Cross entropy per target token.
        nll: f64,
        /// Divergence between R-Drop's two predictions of a target token; `None` without R-Drop.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        divergence: Option<f64>,
        /// Routing of tokens to experts; `None` without experts.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        experts: Option<ExpertLoad>,
        /// Share of target tokens predicted correctly; `None` if the answers are numbers (the loss
        /// is then the squared error).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        accuracy: Option<f64>,
        /// The learning rate of the last update.
        learning_rate: f64,
        /// Mean norm of the gradients before clipping.
        gradient_norm: f64,
        /// Gradient noise scale in target tokens (McCandlish et al. 2018): larger batches hardly
        /// save updates. `None` with one micro-batch per update, or if noise hides the gradient.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        noise_scale: Option<f64>,
        /// Norms of each layer; empty unless `training.log_layers` is set.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        layers: BTreeMap<String, NormsPerLayer>,
        /// Target tokens trained on since the start of the run.
        tokens: u64,
        /// Number of target tokens in the updates that the averages cover.
        window_tokens: u64,
        /// Measurements by the clock.
        timing: Timing,
    },
    /// A validation was made.
    Validation {
        /// Updates made.
        step: u64,
        /// The pass over the data, from 0.
        epoch: u64,
        /// Scores of the validation.
        scores: Scores,
        /// True if the watched metric is better than in all earlier validations.
        improved: bool,
        /// Examples of the model's output; may be empty.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        samples: Vec<Sample>,
        /// Measurements by the clock.
        timing: Timing,
    },
    /// An update was skipped, because the loss or a gradient was not finite, or the loss was too
    /// high.
    Skipped {
        /// Updates made.
        step: u64,
        /// The pass over the data, from 0.
        epoch: u64,
        /// Description of the value that was not finite or too high.
        reason: String,
        /// Place of the error: the first parameter or layer where a value that is not finite
        /// appears, or the batch whose loss is too high.
        place: String,
        /// Number of updates skipped since the last update that was made.
        in_a_row: u32,
        /// Skipped updates since the start of the run.
        total: u64,
    },
    /// A checkpoint was saved.
    Checkpoint {
        /// Updates made.
        step: u64,
        /// Directory of the checkpoint.
        path: PathBuf,
        /// True if the checkpoint is the best so far.
        best: bool,
        /// The names of older checkpoints that were deleted.
        deleted: Vec<String>,
        /// Measurements by the clock.
        timing: Timing,
    },
    /// Checkpoints were averaged at the end of training.
    Averaged {
        /// Updates made.
        step: u64,
        /// The directory of the average.
        path: PathBuf,
        /// The names of the checkpoints that were averaged.
        checkpoints: Vec<String>,
    },
    /// Training ended.
    Stopped {
        /// Updates made.
        step: u64,
        /// The pass over the data, from 0.
        epoch: u64,
        /// Reason.
        reason: StopReason,
        /// Updates skipped since the start of the run.
        skipped: u64,
        /// Measurements by the clock.
        timing: Timing,
    },
}

impl Event {
    /// Returns the number of updates that had been made when the event happened.
    #[must_use]
    pub const fn step(&self) -> u64 {
        match self {
            Self::Log { step, .. }
            | Self::Validation { step, .. }
            | Self::Skipped { step, .. }
            | Self::Checkpoint { step, .. }
            | Self::Averaged { step, .. }
            | Self::Stopped { step, .. } => *step,
        }
    }

    /// True if the event belongs to the record of the run, which is the same wherever the run was
    /// interrupted.
    #[must_use]
    pub const fn is_metric(&self) -> bool {
        matches!(self, Self::Log { .. } | Self::Validation { .. } | Self::Skipped { .. })
    }
}

/// Receiver of each event as it happens.
pub trait Observer {
    /// Receives `event`.
    ///
    /// # Errors
    /// When the event cannot be received, which ends training.
    fn observe(&mut self, event: &Event) -> Result<(), BoxError>;

    /// Is called after each update that was made, for a progress display. `_step` is the number of
    /// updates made, `_seconds` the seconds of training so far.
    ///
    /// # Errors
    /// When progress cannot be shown, which ends training.
    fn updated(&mut self, _step: u64, _seconds: f64) -> Result<(), BoxError> {
        Ok(())
    }

    /// Makes all received events durable. Called before each checkpoint is saved, so that no
    /// checkpoint is ahead of the record.
    ///
    /// # Errors
    /// When the events cannot be made durable, which ends training.
    fn flush(&mut self) -> Result<(), BoxError> {
        Ok(())
    }
}

impl<F: FnMut(&Event) -> Result<(), BoxError>> Observer for F {
    fn observe(&mut self, event: &Event) -> Result<(), BoxError> {
        self(event)
    }
}
