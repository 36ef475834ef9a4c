//! Loss, schedules, optimizer, checkpoints, retention and the training loop.
//!
//! The loop trains any [`Model`](taper_model::Model) on the [batches](taper_model::Batch) that a
//! [`Source`] yields by position, asks a [`Validator`] for scores and reports to an [`Observer`].
//! It names no model, knows no files of text, no tokenizer and no BLEU, and prints nothing.
//!
//! The central decision: the state of a run is weights, moments, counters and a data position, and
//! nothing else. Dropout is a function of (seed, update, micro-batch, place), data order is a
//! function of (seed, epoch), and the learning rate is a function of the update number. So a
//! checkpoint is the complete state, and a resumed run equals an uninterrupted one byte for byte.
//! The alternative, to save the state of generators and iterators, was rejected: each new source of
//! randomness would be one more state to forget.
//!
//! Read [`config`](TrainingConfig) first, then `trainer` (the loop), `updates` (one update),
//! `optimizers` and `checkpoints` (what is on disk).
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
    MergedWeights, OPTIMIZER_FILE, Parent, PartialTable, QuantizedWeights, STATE_FILE,
    SavedCheckpoint, SharedRows, SkippedParameter, State, WarmStart, WarmStartSettings, Window,
    average, checkpoint_name, load_model, merge, read_state, round_to_int8, warm_start,
    write_tensors,
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
