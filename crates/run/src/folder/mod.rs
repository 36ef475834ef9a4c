//! A run on disk, which is the folder that a training writes: its files, its lock, the record of
//! its training, and the rescue of its state when the disk fails.

mod commands;
mod derived;
pub mod files;
mod kept_files;
mod metrics_log;
mod quoted;
mod rescue;
mod run_folder;
mod run_lock;
mod summary;

pub use commands::Command;
pub(crate) use derived::derived;
pub(crate) use kept_files::{KeptFiles, TOKENIZERS};
pub(crate) use metrics_log::MetricsLog;
pub use quoted::{quoted, visible, visible_json};
pub(crate) use rescue::rescue;
pub use run_folder::RunFolder;
pub use run_lock::RunLock;
pub use summary::{BestValidation, RunState, RunSummary, TestScore, list_runs};
