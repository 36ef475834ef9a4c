//! Loss, schedules, optimizer, checkpoints, retention and the training loop.
//!
//! The loop trains any [`Model`](taper_model::Model) on the [batches](taper_model::Batch) that a
//! [`Source`] yields by position, asks a [`Validate`] for scores and tells an [`Observer`] what
//! happens. It names no model, knows no files of text, no tokenizer, no BLEU, and prints nothing.
//!
//! The decision that shapes it: a run's state is weights, moments, counters and a data position,
//! and nothing else. Dropout is a function of (seed, update, micro-batch, place), data order of
//! (seed, epoch), the learning rate of the update number. A checkpoint therefore is the whole
//! state, and a resumed run equals an uninterrupted one byte for byte. The alternative, to save the
//! state of generators and iterators, was rejected: each new source of randomness would be one more
//! thing to forget.
//!
//! Read [`config`](TrainingConfig) first, then `trainer.rs` (the loop), `update.rs` (one update)
//! and `checkpoint.rs` (what is on disk).
#![forbid(unsafe_code)]

mod average;
mod checkpoint;
mod config;
mod early_stopping;
mod error;
mod evaluate;
mod event;
mod files;
mod inspect;
mod rehearsal;
mod retention;
mod schedule;
mod source;
mod state;
mod tensors;
mod trainer;
mod update;
mod warm_start;

pub use average::{Averaged, average};
pub use checkpoint::{
    AVERAGED, BEST, Checkpoints, LAST, LEFT, MODEL_FILE, OPTIMIZER_FILE, STATE_FILE, Saved,
    checkpoint_name, load_model, read_state,
};
pub use config::{
    ConfigError, EarlyStoppingConfig, OptimizerConfig, OptimizerKind, TrainingConfig,
};
pub use early_stopping::{Best, EarlyStopping, Metric, Scores};
pub use error::{BoxError, CheckpointError, TrainError};
pub use evaluate::{NoValidation, TeacherForced, Validate, evaluate};
pub use event::{Event, Observer, StopReason, Timing};
pub use rehearsal::rehearse;
pub use schedule::{ScheduleConfig, ScheduleKind};
pub use source::{Position, Source};
pub use state::{FORMAT_VERSION, FileEntry, Identity, Parent, State, Window};
pub use trainer::Trainer;
pub use update::{Fault, Measured, Optimizer, Outcome};
pub use warm_start::{NotTaken, WarmStart, warm_start};
