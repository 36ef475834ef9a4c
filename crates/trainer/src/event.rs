//! Events of a training. Each is written as one line of JSON.
//!
//! All measured times are in the field `timing`, so that the other fields of two equal runs are
//! equal.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use taper_model::Routing;

use crate::{BoxError, NormsPerLayer, ProcessTime, Scores};

/// Measured times and speeds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Timing {
    /// Total seconds in the training loop, including those before interruptions.
    pub elapsed_seconds: f64,
    /// Target tokens trained on per second since the previous log event; `None` if no update was
    /// made since then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_per_second: Option<f64>,
    /// Times of each process, by rank; empty if there is only one process. In a log event, they are
    /// the times in the updates since the previous log event; in the event [`Event::Stopped`], the
    /// times in all updates; in other events, the list is empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<ProcessTime>,
}

/// Reason why training ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The largest number of updates was reached.
    MaxUpdates,
    /// The largest number of epochs was completed.
    MaxEpochs,
    /// The time limit was reached.
    MaxMinutes,
    /// The score of early stopping did not improve in the configured number of validations.
    EarlyStopping,
    /// The caller requested the interruption. A run that is resumed after it gives the same result
    /// as an uninterrupted run.
    Interrupted,
}

/// Measures of how evenly tokens are routed to experts.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ExpertLoad {
    /// Share of routed tokens that were dropped because they exceeded the capacity of an expert.
    pub dropped: f64,
    /// Load of the busiest expert of a layer: its number of tokens, divided by the number that each
    /// expert would get if all got equally many. This is the mean over layers and updates.
    pub busiest: f64,
}

impl ExpertLoad {
    /// Computes the measures from counts of routed tokens; `None` if no tokens were routed.
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
        /// Number of updates made so far.
        step: u64,
        /// Epoch (pass over the data), counted from 0, to which the next micro-batch belongs.
        epoch: u64,
        /// Label-smoothed cross entropy per target token, in nats; for models that predict numbers,
        /// the squared error per number.
        loss: f64,
        /// Cross entropy per target token, in nats; for models that predict numbers, the squared
        /// error per number.
        nll: f64,
        /// Mean divergence between R-Drop's two predictions of a target token; `None` without
        /// R-Drop.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        divergence: Option<f64>,
        /// Routing of tokens to experts; `None` without experts.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        experts: Option<ExpertLoad>,
        /// Share of target tokens that were predicted correctly; `None` if the model predicts
        /// numbers.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        accuracy: Option<f64>,
        /// The learning rate of the last update.
        learning_rate: f64,
        /// Mean norm of the gradients before clipping.
        gradient_norm: f64,
        /// Gradient noise scale, in target tokens (McCandlish et al. 2018). Batches larger than
        /// this hardly decrease the number of updates that a training needs. `None` with one
        /// micro-batch per update, or if the noise is too large to estimate the gradient.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        noise_scale: Option<f64>,
        /// Norms of gradients and weights of each layer; empty unless `training.log_layers` is set.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        layers: BTreeMap<String, NormsPerLayer>,
        /// Number of target tokens in all updates since the start of the run.
        tokens: u64,
        /// Number of target tokens in the updates since the last log event.
        window_tokens: u64,
        /// Measured times and speeds.
        timing: Timing,
    },
    /// A validation was made.
    Validation {
        /// Number of updates made so far.
        step: u64,
        /// Epoch (pass over the data), counted from 0, of the next micro-batch.
        epoch: u64,
        /// Scores of the validation.
        scores: Scores,
        /// Whether the score of early stopping is better than in all earlier validations.
        improved: bool,
        /// Examples of the model's output; can be empty.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        samples: Vec<Sample>,
        /// Measured times and speeds.
        timing: Timing,
    },
    /// An update was skipped, because the loss or a gradient was not finite, or the loss was too
    /// high.
    Skipped {
        /// Number of updates made so far.
        step: u64,
        /// Epoch (pass over the data), counted from 0, in which the update began.
        epoch: u64,
        /// Description of the value that was not finite or too high.
        reason: String,
        /// Place of the error: the first parameter or layer where a value that is not finite
        /// appears, or the batch whose loss is too high.
        place: String,
        /// Number of updates skipped since the last update that was made.
        in_a_row: u32,
        /// Number of updates skipped since the start of the run.
        total: u64,
    },
    /// A checkpoint was saved.
    Checkpoint {
        /// Number of updates made so far.
        step: u64,
        /// Directory of the checkpoint.
        path: PathBuf,
        /// True if the checkpoint is the best so far.
        best: bool,
        /// Names of older checkpoints that were deleted.
        deleted: Vec<String>,
        /// Measured times and speeds.
        timing: Timing,
    },
    /// Checkpoints were averaged at the end of training.
    Averaged {
        /// Number of updates made so far.
        step: u64,
        /// Directory of the average.
        path: PathBuf,
        /// Names of the checkpoints that were averaged.
        checkpoints: Vec<String>,
    },
    /// Training ended.
    Stopped {
        /// Number of updates made so far.
        step: u64,
        /// Epoch (pass over the data), counted from 0, of the next micro-batch.
        epoch: u64,
        /// Reason why training ended.
        reason: StopReason,
        /// Number of updates skipped since the start of the run.
        skipped: u64,
        /// Measured times and speeds.
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

    /// Whether the event is one of the metrics of the run, which do not depend on where the run was
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
    /// If the event cannot be received. This ends training.
    fn observe(&mut self, event: &Event) -> Result<(), BoxError>;

    /// Is called after each update that was not skipped, for a progress display. `_step`: number of
    /// updates so far. `_seconds`: seconds of training so far.
    ///
    /// # Errors
    /// If progress cannot be shown. This ends training.
    fn updated(&mut self, _step: u64, _seconds: f64) -> Result<(), BoxError> {
        Ok(())
    }

    /// Writes all received events to the disk. It is called before each checkpoint is saved, so
    /// that no event before the checkpoint can be lost.
    ///
    /// # Errors
    /// If the events cannot be written. This ends training.
    fn flush(&mut self) -> Result<(), BoxError> {
        Ok(())
    }
}

impl<F: FnMut(&Event) -> Result<(), BoxError>> Observer for F {
    fn observe(&mut self, event: &Event) -> Result<(), BoxError> {
        self(event)
    }
}
