//! How a run is trained, and what it comes to.

use std::path::PathBuf;

use anyhow::Result;
use candle_core::Device;
use taper_trainer::StopReason;

use crate::checks::memory::Budget;
use crate::evaluation::TestSetResult;
use crate::folder::Command;

/// How a run is trained on this machine; nothing here changes what it comes to.
#[derive(Debug, Clone, Default)]
pub struct TrainSettings {
    /// auto, cpu, cuda, cuda:N or metal; none: the recipe's.
    pub device: Option<String>,
    /// Bytes of memory that training may take; none: what the system has available.
    pub memory: Option<u64>,
    /// The run, or the folder of the checkpoint, with whose weights and tokenizer a new run begins;
    /// none: weights that are drawn.
    pub from: Option<PathBuf>,
    /// What is taken of it: parts, modules, or patterns of names of parameters; none for all.
    pub only: Vec<String>,
    /// Whether the new run has a tokenizer of its own, and takes the rows of tokens that both have.
    pub own_tokenizer: bool,
    /// Where the state is saved if the run's folder takes no more; none: taper-rescue in the
    /// system's temporary folder.
    pub rescue: Option<PathBuf>,
    /// How many processes train together, and how many of them on this machine, whose memory they
    /// share; 0 is this one alone.
    pub processes: usize,
    /// See `processes`.
    pub processes_here: usize,
    /// The command that is kept in the run; none: nothing is kept.
    pub command: Option<Command>,
    /// Resume although the text or the recipe's data, model or dtype have changed.
    pub accept_changes: bool,
}

impl TrainSettings {
    /// The memory that training on `device` may take.
    pub(super) fn budget(&self, device: &Device) -> Result<Budget> {
        Budget::of(self.memory, self.processes, self.processes_here, device)
    }
}

/// What a training came to.
#[derive(Debug)]
pub enum Outcome {
    /// The stop flag ended it; all that was done is saved, and [`resume`](super::resume) continues it.
    Interrupted {
        /// Updates made.
        step: u64,
    },
    /// It is complete.
    Complete {
        /// Why it ended.
        reason: StopReason,
        /// Updates made.
        step: u64,
        /// The test sets, decoded with the weights that [`LoadedRun`](crate::LoadedRun) takes.
        results: Vec<TestSetResult>,
    },
}
