//! Errors of training and of checkpoints. Most messages say what failed and where, and give advice.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::{ConfigError, ExchangeError, OptimizerKind};

/// Error of any type, for example from a data source or an observer that the caller supplied.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Reason why training could not begin or continue.
#[derive(Debug, Error)]
pub enum TrainError {
    /// The configuration is not valid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A checkpoint could not be saved or loaded.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The checkpoint belongs to a run with another seed, so that training with the configured seed
    /// would not continue that run.
    #[error(
        "{} was trained with seed {saved}, but training.seed is {configured}: set it to {saved}, \
         or start a new run",
        path.display()
    )]
    Seed {
        /// Path of the checkpoint.
        path: PathBuf,
        /// Seed in the checkpoint.
        saved: u64,
        /// Seed in the configuration.
        configured: u64,
    },
    /// From some micro-batch on, the data has no target tokens.
    #[error(
        "epoch {epoch} has no target tokens from micro-batch {index} on: check the data report \
         for dropped examples"
    )]
    NoData {
        /// Epoch (pass over the data), counted from 0.
        epoch: u64,
        /// Index of the micro-batch in the epoch.
        index: u64,
    },
    /// Another process of the training has ended, or cannot be reached.
    #[error(transparent)]
    Exchange(#[from] ExchangeError),
    /// The training data could not be read.
    #[error("cannot fetch micro-batch {index} of epoch {epoch}")]
    Source {
        /// Epoch (pass over the data), counted from 0.
        epoch: u64,
        /// Index of the micro-batch in the epoch.
        index: u64,
        /// Cause.
        source: BoxError,
    },
    /// The model or the optimizer failed.
    #[error("cannot {action} at update {step}")]
    Compute {
        /// Action that failed.
        action: &'static str,
        /// Number of the update, counted from 1; 0 before the first update.
        step: u64,
        /// Cause.
        source: BoxError,
    },
    /// Several updates in a row were skipped, because the loss was too high, or the loss or a
    /// gradient was not finite.
    #[error(
        "training diverged: {in_a_row} updates in a row after update {step} were skipped, the last because {reason} ({place}); \
         {last_good}; go on with a lower learning rate, more warm-up or a smaller clip_norm"
    )]
    Diverged {
        /// Number of updates made so far.
        step: u64,
        /// Number of updates that were skipped in a row.
        in_a_row: u32,
        /// Description of the value that was not finite or too high.
        reason: String,
        /// First parameter or layer with a value that is not finite, or the batch whose loss is too
        /// high.
        place: String,
        /// Description of the last checkpoint that was saved before the first of the skipped
        /// updates.
        last_good: String,
    },
    /// The losses of several validations, or of the last one, were far above the loss of random
    /// guesses, or not finite.
    #[error(
        "training diverged: the validation loss after update {step} is {loss:.2}{place}{}; train with \
         a lower learning rate, a longer warm-up or a smaller clip_norm",
        best.as_ref().map_or_else(String::new, |(step, path)| format!(
            "; the best checkpoint, of update {step}, is {}", path.display()
        ))
    )]
    Astray {
        /// Number of updates made so far.
        step: u64,
        /// Loss of the last validation, in nats per predicted token or class.
        loss: f64,
        /// Comparison with the loss of random guesses, as part of the message; can be empty.
        place: String,
        /// Best validation so far: number of updates, and path of its checkpoint; `None` if there
        /// is none.
        best: Option<(u64, PathBuf)>,
    },
    /// Validation failed.
    #[error("validation after update {step} failed")]
    Validation {
        /// Number of updates made so far.
        step: u64,
        /// Cause.
        source: BoxError,
    },
    /// Validation did not measure the score that the metric of early stopping requires.
    #[error(
        "training.early_stopping.metric is {metric}, but validation measured only: {available}"
    )]
    MissingMetric {
        /// Metric of early stopping.
        metric: &'static str,
        /// Names of the measured scores.
        available: String,
    },
    /// The [`Observer`](crate::Observer) of the training returned an error.
    #[error("cannot record the events at update {step}")]
    Observer {
        /// Number of updates made so far.
        step: u64,
        /// Cause.
        source: BoxError,
    },
}

impl TrainError {
    /// Returns the failure of communication between processes, or `None` if this error has another
    /// cause.
    #[must_use]
    pub fn between_processes(&self) -> Option<&ExchangeError> {
        match self {
            Self::Exchange(error) => Some(error),
            Self::Compute { source, .. } => source.downcast_ref(),
            _ => None,
        }
    }
}

/// Reason why a checkpoint could not be saved or loaded.
#[derive(Debug, Error)]
pub enum CheckpointError {
    /// No checkpoint has this name.
    #[error("no checkpoint '{name}' in {}: there is {available}", root.display())]
    NotFound {
        /// Name of the requested checkpoint.
        name: String,
        /// Folder that was searched.
        root: PathBuf,
        /// Names of the existing checkpoints.
        available: String,
    },
    /// A pointer file does not contain the name of a checkpoint.
    #[error(
        "{} names {content:?}, but there is no checkpoint there: write the name of a checkpoint \
         into this file; there is {available}",
        path.display()
    )]
    Pointer {
        /// Path of the pointer file.
        path: PathBuf,
        /// Beginning of the file's content.
        content: String,
        /// Names of the existing checkpoints.
        available: String,
    },
    /// A file of a checkpoint is missing.
    #[error("{} is missing: the checkpoint is incomplete, use another one", path.display())]
    Missing {
        /// Path of the file.
        path: PathBuf,
    },
    /// Checkpoints that are to be averaged have adapters of different frozen weights, or with
    /// different scales (factors of the adapters).
    #[error(
        "{} has adapters of other weights, or with another scale: average checkpoints of one run",
        path.display()
    )]
    OtherBase {
        /// Path of the checkpoint.
        path: PathBuf,
    },
    /// A part of the change that adapters make was to be added to the weights of another
    /// checkpoint. This is not possible for adapters of DoRA, because they also rescale the
    /// weights.
    #[error(
        "the adapters have trained lengths (DoRA), so no share of them can be added to {}",
        path.display()
    )]
    Magnitudes {
        /// Path of the checkpoint with the other weights.
        path: PathBuf,
    },
    /// A checkpoint has no adapters.
    #[error("{} has no adapters: its weights are whole already", path.display())]
    NoAdapters {
        /// Path of the checkpoint.
        path: PathBuf,
    },
    /// The frozen weights that the adapters of a run change are missing.
    #[error(
        "{} is missing: it has the weights that the adapters in the run's checkpoints change; put \
         it back from a copy of the run's folder",
        path.display()
    )]
    MissingBase {
        /// Path of the file of the frozen weights.
        path: PathBuf,
    },
    /// A file or directory could not be read or written.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// Action that failed.
        action: &'static str,
        /// Path of the file or directory.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// A file is shorter than when it was saved.
    #[error("{} is truncated: it has {got} bytes of {expected}; use another checkpoint", path.display())]
    Truncated {
        /// Path of the file.
        path: PathBuf,
        /// Size when it was saved.
        expected: u64,
        /// Size now.
        got: u64,
    },
    /// A file differs from what was saved.
    #[error("{} is corrupt: {reason}; use another checkpoint", path.display())]
    Corrupt {
        /// Path of the file.
        path: PathBuf,
        /// Description of the fault of the file.
        reason: String,
    },
    /// The checkpoint has a format of a later version of this program.
    #[error("{} has format {found}, but this version reads formats up to {supported}: upgrade", path.display())]
    NewerFormat {
        /// Path of the file.
        path: PathBuf,
        /// Format of the file.
        found: u32,
        /// The newest format that can be read.
        supported: u32,
    },
    /// The checkpoint has a field of a later version of this program.
    #[error("{} is from a newer version of this program ({field}): upgrade", path.display())]
    NewerFields {
        /// Path of the file.
        path: PathBuf,
        /// Description of the field that this version does not know.
        field: String,
    },
    /// Weights in int8 were to be converted or averaged, but they can only be used for decoding.
    #[error("{} is in int8: use the checkpoint that it was made from, {}", path.display(), parent.display())]
    Int8 {
        /// Path of the file.
        path: PathBuf,
        /// Path of the checkpoint whose weights were rounded to int8.
        parent: PathBuf,
    },
    /// A tensor of the checkpoint has a value that is NaN or infinite.
    #[error("{}: tensor '{name}' has a value that is not finite: use an earlier checkpoint", path.display())]
    NotFinite {
        /// Path of the file.
        path: PathBuf,
        /// Name of the tensor.
        name: String,
    },
    /// A tensor of the model is not in the file.
    #[error("{} has no tensor '{name}' (expected shape {expected:?}): it belongs to another model", path.display())]
    MissingTensor {
        /// Path of the file.
        path: PathBuf,
        /// Name of the tensor.
        name: String,
        /// Shape of the model's parameter.
        expected: Vec<usize>,
    },
    /// The file has a tensor for which the model has no parameter.
    #[error("{} has a tensor '{name}' of shape {got:?} that the model lacks: it belongs to another model", path.display())]
    UnexpectedTensor {
        /// Path of the file.
        path: PathBuf,
        /// Name of the tensor.
        name: String,
        /// Shape of the tensor in the file.
        got: Vec<usize>,
    },
    /// A tensor has another shape than in the model.
    #[error("{}: tensor '{name}' has shape {got:?}, but the model expects {expected:?}", path.display())]
    Shape {
        /// Path of the file.
        path: PathBuf,
        /// Name of the tensor.
        name: String,
        /// Shape of the model's parameter.
        expected: Vec<usize>,
        /// Shape of the tensor in the file.
        got: Vec<usize>,
    },
    /// The checkpoint was trained with another tokenizer, so its embeddings belong to other tokens.
    #[error(
        "{} was trained with the tokenizer {expected}, but the one given is {got}: use the \
         tokenizer.json of its run",
        path.display()
    )]
    Tokenizer {
        /// Path of the checkpoint's state file.
        path: PathBuf,
        /// Hash of the checkpoint's tokenizer.
        expected: String,
        /// Hash of the given tokenizer.
        got: String,
    },
    /// The checkpoint was saved with another optimizer, whose state the configured optimizer cannot
    /// use.
    #[error(
        "{} has no '{missing}', which {kind:?} keeps: the run was trained with another \
         optimizer; set training.optimizer.kind back, or start a new run",
        path.display()
    )]
    OtherOptimizer {
        /// Path of the file.
        path: PathBuf,
        /// Kind of the configured optimizer.
        kind: OptimizerKind,
        /// Names of the configured optimizer's buffers that are not in the file.
        missing: String,
    },
    /// The caller's function that returns the values of tensors failed.
    #[error(transparent)]
    Values(BoxError),
    /// The list of checkpoints to average was empty.
    #[error("no checkpoints to average: name at least one")]
    NothingToAverage,
    /// Values could not be copied between tensors of the model and the file.
    #[error("cannot move tensors between the device and {}", path.display())]
    Tensor {
        /// Path of the file.
        path: PathBuf,
        /// Cause.
        source: candle_core::Error,
    },
}
