//! Settings and outcome of a training.

use std::path::PathBuf;

use anyhow::Result;
use candle_core::Device;
use taper_trainer::StopReason;

use crate::checks::memory::Budget;
use crate::evaluation::TestSetResult;
use crate::folder::Command;

/// Settings of a training on this machine; they do not change its result.
#[derive(Debug, Clone, Default)]
pub struct TrainSettings {
    /// Name of a device: auto, cpu, cuda, cuda:N or metal. `None`: the recipe's.
    pub device: Option<String>,
    /// Bytes of memory that training may use. `None`: as many as the system has available.
    pub memory: Option<u64>,
    /// Run or checkpoint folder that gives a new run its weights and tokenizer. `None`: random
    /// weights.
    pub from: Option<PathBuf>,
    /// Parameters copied from `from`: parts, modules, or patterns of names. Empty: all.
    pub only: Vec<String>,
    /// Whether the new run has its own tokenizer, and copies only the rows of common tokens.
    pub own_tokenizer: bool,
    /// Folder for the state if the run's folder cannot be written. `None`: taper-rescue in the
    /// system's temporary folder.
    pub rescue: Option<PathBuf>,
    /// Number of processes that train together; 0: this one alone.
    pub processes: usize,
    /// Number of the training's processes on this machine, which share its memory. 0 means one
    /// process.
    pub processes_here: usize,
    /// Command that is recorded in the run. `None`: nothing is recorded.
    pub command: Option<Command>,
    /// Whether to resume although the text or the recipe's data, model or dtype have changed.
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
    /// The stop flag ended training; all work is saved, and [`resume`](super::resume) continues it.
    Interrupted {
        /// Updates made.
        step: u64,
    },
    /// The training is complete.
    Complete {
        /// Reason of the end.
        reason: StopReason,
        /// Updates made.
        step: u64,
        /// Results on the test sets, with the weights that [`LoadedRun`](crate::LoadedRun) uses.
        results: Vec<TestSetResult>,
    },
}
