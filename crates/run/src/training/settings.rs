//! Settings and outcome of a training.

use std::path::PathBuf;

use anyhow::Result;
use candle_core::Device;
use taper_trainer::StopReason;

use crate::checks::memory::Budget;
use crate::evaluation::TestSetResult;
use crate::folder::Command;

/// Settings of a training that concern this machine, or what a new run begins with.
#[derive(Debug, Clone, Default)]
pub struct TrainSettings {
    /// Name of a device: auto, cpu, cuda, cuda:N or metal; `None` for the recipe's device.
    pub device: Option<String>,
    /// Bytes of memory that training may use; `None` for as many as the system has available.
    pub memory: Option<u64>,
    /// Run or checkpoint folder with whose weights and tokenizer a new run begins; `None` to begin
    /// with random weights.
    pub from: Option<PathBuf>,
    /// Parameters to copy from `from`, named by parts, modules, or patterns of names; empty for
    /// all.
    pub only: Vec<String>,
    /// True if the new run has its own tokenizer. Then only the rows of tokens that are in both
    /// vocabularies are copied.
    pub own_tokenizer: bool,
    /// Folder for the state of the training if the run's folder cannot be written; `None` for
    /// taper-rescue in the system's temporary folder.
    pub rescue: Option<PathBuf>,
    /// Number of processes that train together; 0 if this one trains alone.
    pub processes: usize,
    /// Number of these processes on this machine, which share its memory; 0 counts as 1.
    pub processes_here: usize,
    /// Command to record in the run; `None` to record nothing.
    pub command: Option<Command>,
    /// True to continue even if the text, or the recipe's data, model or dtype, has changed.
    pub accept_changes: bool,
}

impl TrainSettings {
    /// Memory that training on `device` may use.
    pub(super) fn budget(&self, device: &Device) -> Result<Budget> {
        Budget::for_process(self.memory, self.processes, self.processes_here, device)
    }
}

/// Outcome of a training.
#[derive(Debug)]
pub enum Outcome {
    /// Training ended early, because the stop flag was set. All work is saved, and
    /// [`resume`](super::resume) continues it.
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
