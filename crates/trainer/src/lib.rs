//! Training loop, with optimizers, learning-rate schedules, checkpoints and the choice of the
//! checkpoints to keep.
//!
//! The loop trains any [`Model`](taper_model::Model) on the [batches](taper_model::Batch) that a
//! [`Source`] yields by position, asks a [`Validator`] for scores and reports to an [`Observer`].
//! It does not depend on particular models, text files, tokenizers or BLEU, and prints nothing.
//!
//! The central decision: the state of a run consists of weights, buffers of the optimizer, counters
//! and a position in the data. Dropout is a function of seed, update, micro-batch and position in
//! the model; the order of the data is a function of seed and epoch; and the learning rate is a
//! function of the number of the update. So a checkpoint has the complete state, and the files of a
//! resumed run are identical byte for byte to those of an uninterrupted run. The alternative, to
//! save the state of random generators and iterators, was rejected, because each new generator
//! would have a state that could be left out by mistake.
//!
//! A good order to read the code: first the module [`config`](TrainingConfig), then `trainer` (the
//! loop), `updates` (one update), `optimizers`, and `checkpoints` (the files on disk).
#![forbid(unsafe_code)]

mod checkpoints;
mod config;
mod early_stopping;
mod error;
mod event;
mod exact;
mod exchange;
mod optimizers;
mod process_time;
mod schedule;
mod scores;
mod source;
mod trainer;
mod updates;
mod validation;

pub use checkpoints::{
    ADAPTERS_FORMAT_VERSION, AVERAGED, AveragedWeights, BASE_FILE, BEST, Base, Checkpoints,
    FORMAT_VERSION, FileEntry, INT8_FORMAT_VERSION, Identity, LAST, LEFT, MODEL_FILE,
    MergedWeights, OPTIMIZER_FILE, Parent, PartialTable, PendingWeights, QuantizedWeights,
    STATE_FILE, SavedCheckpoint, SharedRows, SkippedParameter, State, WarmStart, WarmStartSettings,
    Window, average, checkpoint_name, checkpoint_step, load_model, merge, read_state,
    round_to_int8, state_json, warm_start, write_tensors,
};
pub use config::{
    ConfigError, DistributedConfig, EarlyStoppingConfig, GuidedAlignmentConfig, TrainingConfig,
};
pub use early_stopping::{Best, EarlyStopping};
pub use error::{BoxError, CheckpointError, TrainError};
pub use event::{Event, ExpertLoad, Observer, Sample, StopReason, Timing};
#[cfg(feature = "mpi")]
pub use exchange::Mpi;
#[cfg(feature = "nccl")]
pub use exchange::Nccl;
pub use exchange::{
    Exchange, ExchangeError, InProcess, LeaveHandle, Network, OnProcessLoss, Rendezvous,
    SingleProcess, Sockets, balanced, everyone, in_process, in_process_over, machine, require_same,
};
pub use optimizers::{Optimizer, OptimizerConfig, OptimizerKind, Part, Step};
pub use process_time::ProcessTime;
pub use schedule::{ScheduleConfig, ScheduleKind};
pub use scores::{Metric, Scores};
pub use source::{Position, Source};
pub use trainer::{DivergenceMonitor, Trainer, UnsavedState};
pub use updates::{
    DueUpdate, GradientNoise, NormsPerLayer, Outcome, SkipReason, UpdateMetrics, Updater, rehearse,
};
pub use validation::{NoValidation, TeacherForced, Validator, evaluate, evaluate_under};
