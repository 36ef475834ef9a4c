//! Communication of processes that train one model together.
//!
//! The gradients of an update's micro-batches are summed in the order of a fixed binary tree, whose
//! leaves are the micro-batches. Each process computes a range of leaves, and sums their gradients
//! for each complete subtree in this range. These sums are divided into pieces (ranges of
//! parameters), which are exchanged. Each process then has one piece of the total, and makes the
//! optimizer's step on this piece (Rajbhandari et al. 2020, "ZeRO", section 5.1). All decisions
//! depend only on values that every process has. So the resulting weights are identical bit for bit
//! for any number of processes.
//!
//! The alternative, the reductions that MPI and NCCL offer, was rejected: the order of their sums
//! depends on the number of processes and on the network.

mod agreement;
mod in_process;
#[cfg(feature = "mpi")]
mod mpi;
#[cfg(feature = "nccl")]
mod nccl;
mod share;
mod sockets;
mod timed;

use std::collections::VecDeque;

use candle_core::Tensor;
use thiserror::Error;

pub(crate) use agreement::{agree, by_the_first};
pub use agreement::{everyone, machine, require_same};
pub use in_process::{InProcess, Network, in_process, in_process_over};
#[cfg(feature = "mpi")]
pub use mpi::Mpi;
#[cfg(feature = "nccl")]
pub use nccl::Nccl;
pub use share::balanced;
pub(crate) use share::{Layout, Piece, buckets, halves, leaves_of, nodes_of};
pub use sockets::{LeaveHandle, OnProcessLoss, Rendezvous, Sockets};
pub(crate) use timed::Timed;

/// Failure to communicate with other processes.
#[derive(Debug, Error)]
pub enum ExchangeError {
    /// Another process has ended because of an error, which it reports itself.
    #[error("process {rank} of the training has ended: see its output")]
    Failed {
        /// Rank of the process.
        rank: usize,
    },
    /// A process has disappeared without a message, for example because it was killed.
    #[error("process {rank} of the training is gone: {why}; a training needs all of its processes")]
    Lost {
        /// Rank of the process.
        rank: usize,
        /// Rank of the process that noticed this.
        here: usize,
        /// Description of how this was noticed.
        why: String,
    },
    /// A process was started with another setting than process 0.
    #[error("process {rank} of the training has another {subject} than process 0{details}")]
    Differs {
        /// Rank of the process.
        rank: usize,
        /// Rank of the process that noticed this.
        here: usize,
        /// Name of the setting that differs.
        subject: &'static str,
        /// Description of the difference, or advice.
        details: String,
    },
    /// The processes could not all connect.
    #[error("{0}")]
    Rendezvous(String),
    /// A process has sent unexpected data, probably because it runs another version of this
    /// program.
    #[error(
        "process {rank} sent data that this process does not understand: start the same program \
         for all processes"
    )]
    Garbled {
        /// Rank of the process.
        rank: usize,
    },
    /// A tensor could not be copied.
    #[error(transparent)]
    Tensor(#[from] candle_core::Error),
}

impl ExchangeError {
    /// Whether another process reports this error, so that this process need not report it. So
    /// each failure is reported by only one process.
    #[must_use]
    pub const fn is_told_elsewhere(&self) -> bool {
        match self {
            Self::Failed { .. } => true,
            Self::Lost { rank, here, .. } => *here != if *rank == 0 { 1 } else { 0 },
            Self::Differs { here, .. } => *here != 0,
            Self::Rendezvous(_) | Self::Garbled { .. } | Self::Tensor(_) => false,
        }
    }

    /// Error about the failure of a connection from process `here` to process `rank`.
    pub(crate) fn lost(rank: usize, here: usize, error: &std::io::Error) -> Self {
        Self::Lost { rank, here, why: format!("the connection to this process failed ({error})") }
    }
}

/// Connection of this process to all processes that train the same model.
///
/// All processes must call the same methods in the same order. Unless stated otherwise, a call
/// waits until all processes have made the same call.
pub trait Exchange: Send {
    /// Rank of this process: its index among all processes. Process 0 validates, reports and writes
    /// files for all.
    fn rank(&self) -> usize;

    /// Number of processes.
    fn size(&self) -> usize;

    /// Begins to send `parts[r]` to process `r`. [`Exchange::end`] returns the parts that the
    /// processes have sent to this one. Several exchanges can be begun before the first is ended.
    /// This call waits for other processes only if [`Exchange::waits_to_begin`] returns true.
    ///
    /// Implementations can avoid copies of the parts, so their memory must not be written to before
    /// all processes have ended the exchange.
    ///
    /// # Shapes
    /// Each part is an f32 tensor `(length,)`. Lengths can differ, and can be 0.
    ///
    /// # Errors
    /// If a process has ended, or the device has too little memory.
    fn begin(&mut self, parts: Vec<Tensor>) -> Result<(), ExchangeError>;

    /// Whether [`Exchange::begin`] waits until all processes have called it.
    fn waits_to_begin(&self) -> bool {
        false
    }

    /// Waits for the earliest exchange that was begun but not ended. Returns the parts that all
    /// processes, including this one, have sent to this process, by the sender's rank.
    ///
    /// # Errors
    /// See [`Exchange::begin`].
    fn end(&mut self) -> Result<Vec<Tensor>, ExchangeError>;

    /// Sends `parts[r]` to process `r`, and returns the parts that all processes, including this
    /// one, have sent to this process, by the sender's rank.
    ///
    /// # Errors
    /// See [`Exchange::begin`].
    fn exchange(&mut self, parts: Vec<Tensor>) -> Result<Vec<Tensor>, ExchangeError> {
        self.begin(parts)?;
        self.end()
    }

    /// Sends `message` to every process, and returns the messages of all processes, by rank. All
    /// exchanges that were begun must have been ended before this call.
    ///
    /// # Errors
    /// If a process has ended.
    fn gather(&mut self, message: Vec<u8>) -> Result<Vec<Vec<u8>>, ExchangeError>;

    /// Returns the `message` of process 0 in all processes. The messages of other processes are
    /// ignored.
    ///
    /// # Errors
    /// See [`Exchange::gather`].
    fn broadcast(&mut self, message: Vec<u8>) -> Result<Vec<u8>, ExchangeError> {
        let message = if self.rank() == 0 { message } else { Vec::new() };
        Ok(self.gather(message)?.swap_remove(0))
    }

    /// Waits until every process has called this.
    ///
    /// # Errors
    /// See [`Exchange::gather`].
    fn barrier(&mut self) -> Result<(), ExchangeError> {
        self.gather(Vec::new()).map(drop)
    }
}

/// Exchange of a single process that trains alone.
#[derive(Debug, Default)]
pub struct SingleProcess {
    /// Parts of the exchanges in progress, which the process sends to itself.
    begun: VecDeque<Vec<Tensor>>,
}

impl Exchange for SingleProcess {
    fn rank(&self) -> usize {
        0
    }

    fn size(&self) -> usize {
        1
    }

    fn begin(&mut self, parts: Vec<Tensor>) -> Result<(), ExchangeError> {
        self.begun.push_back(parts);
        Ok(())
    }

    fn end(&mut self) -> Result<Vec<Tensor>, ExchangeError> {
        self.begun.pop_front().ok_or(ExchangeError::Garbled { rank: 0 })
    }

    fn gather(&mut self, message: Vec<u8>) -> Result<Vec<Vec<u8>>, ExchangeError> {
        Ok(vec![message])
    }
}
