//! Settings and outcome of a training.

use std::path::PathBuf;

use anyhow::Result;
use candle_core::Device;
use taper_trainer::StopReason;

use crate::checks::memory::Budget;
use crate::evaluation::TestSetResult;
use crate::folder::Command;

/// Settings of a training that are not part of the recipe (TOML file): settings of this machine,
/// and the weights from which a new run (folder of a training) begins.
#[derive(Debug, Clone, Default)]
pub struct TrainSettings {
    /// Name of a device: auto, cpu, cuda, cuda:N or metal; `None` for the recipe's device.
    pub device: Option<String>,
    /// Limit of the memory for training, in bytes; `None` for the available memory of the system.
    pub memory: Option<u64>,
    /// Run or checkpoint folder from which a new run takes weights and tokenizer; `None` to begin
    /// with random weights.
    pub from: Option<PathBuf>,
    /// Parameters to copy from `from`: names of parts or modules, or patterns of parameter names.
    /// If empty, all parameters are copied.
    pub only: Vec<String>,
    /// Whether the new run has its own tokenizer. Then embeddings are copied only for tokens that
    /// are in both vocabularies.
    pub own_tokenizer: bool,
    /// Folder for the state of the training if the run's folder cannot be written; `None` for
    /// taper-rescue in the system's temporary folder.
    pub rescue: Option<PathBuf>,
    /// Number of processes that train together; 0 if this process trains alone.
    pub processes: usize,
    /// Number of the processes that run on this machine and share its memory; 0 counts as 1.
    pub processes_here: usize,
    /// Command to record in the run; `None` to record nothing.
    pub command: Option<Command>,
    /// True to continue even if the text, or the recipe's data, model or dtype, has changed.
    pub accept_changes: bool,
}

impl TrainSettings {
    /// Memory to which training on `device` is limited.
    pub(super) fn budget(&self, device: &Device) -> Result<Budget> {
        Budget::for_process(self.memory, self.processes, self.processes_here, device)
    }
}

/// Outcome of a training.
#[derive(Debug)]
pub enum Outcome {
    /// Training ended early, because the stop flag was set. The state is saved, and
    /// [`resume`](super::resume) continues from it.
    Interrupted {
        /// Number of updates so far.
        step: u64,
    },
    /// The training is complete.
    Complete {
        /// Reason why training ended.
        reason: StopReason,
        /// Number of updates.
        step: u64,
        /// Results on the test sets, with the weights that [`LoadedRun`](crate::LoadedRun) uses.
        results: Vec<TestSetResult>,
    },
}
