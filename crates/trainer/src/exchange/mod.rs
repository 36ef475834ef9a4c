//! Communication of processes that train one model together.
//!
//! The micro-batches of an update are the leaves of a fixed binary tree, and are divided among
//! processes. Each process sums the gradients of its own micro-batches, subtree by subtree. Pieces
//! of these sums are exchanged, so that each process has one piece of the total, and makes the
//! optimizer's step on that piece (Rajbhandari et al. 2020, "ZeRO", section 5.1). All decisions
//! depend only on values that every process has. So the result is the same to the bit for any
//! number of processes; a single process is the trivial case.
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
    /// Another process has failed, and reports the reason itself.
    #[error("process {rank} of the training has ended: see its output")]
    Failed {
        /// Rank.
        rank: usize,
    },
    /// A process is gone, and cannot report anything.
    #[error("process {rank} of the training is gone: {why}; a training needs all of its processes")]
    Lost {
        /// Rank.
        rank: usize,
        /// Rank of the process that noticed this.
        here: usize,
        /// Symptom.
        why: String,
    },
    /// A process was started with another setting than process 0.
    #[error("process {rank} of the training has another {subject} than process 0{details}")]
    Differs {
        /// Rank.
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
    /// A process sent unexpected bytes: it runs another version of this program.
    #[error(
        "process {rank} sent data that this one does not understand: start the same program on \
         each"
    )]
    Garbled {
        /// Rank.
        rank: usize,
    },
    /// A tensor could not be moved.
    #[error(transparent)]
    Tensor(#[from] candle_core::Error),
}

impl ExchangeError {
    /// True if another process reports this failure; each failure is reported by only one process.
    #[must_use]
    pub const fn is_told_elsewhere(&self) -> bool {
        match self {
            Self::Failed { .. } => true,
            Self::Lost { rank, here, .. } => *here != if *rank == 0 { 1 } else { 0 },
            Self::Differs { here, .. } => *here != 0,
            Self::Rendezvous(_) | Self::Garbled { .. } | Self::Tensor(_) => false,
        }
    }

    /// Returns the error for a connection from process `here` to process `rank` that failed.
    pub(crate) fn lost(rank: usize, here: usize, error: &std::io::Error) -> Self {
        Self::Lost { rank, here, why: format!("the connection to it failed ({error})") }
    }
}

/// Connection of this process to all processes that train the same model.
///
/// All processes must call the same methods in the same order; each call waits until every process
/// has made it, unless stated otherwise.
pub trait Exchange: Send {
    /// Number of this process, from 0. Process 0 measures, prints and writes for all.
    fn rank(&self) -> usize;

    /// Number of processes.
    fn size(&self) -> usize;

    /// Begins to send `parts[r]` to process `r`, without waiting. [`Exchange::end`] returns the
    /// parts that the processes sent to this one. Several exchanges may be begun before the first
    /// is ended.
    ///
    /// Parts are not copied if possible: their storage must not be written to before all processes
    /// have ended the exchange.
    ///
    /// # Shapes
    /// Parts are flat and f32, `(length,)`; their lengths may differ, and may be 0.
    ///
    /// # Errors
    /// If a process has ended, or the device has no memory left.
    fn begin(&mut self, parts: Vec<Tensor>) -> Result<(), ExchangeError>;

    /// Waits for the earliest exchange that was begun but not ended, and returns the parts that the
    /// processes sent to this one, by the sender's rank.
    ///
    /// # Errors
    /// See [`Exchange::begin`].
    fn end(&mut self) -> Result<Vec<Tensor>, ExchangeError>;

    /// Sends `parts[r]` to process `r`, and returns the parts that the processes sent to this one,
    /// by the sender's rank.
    ///
    /// # Errors
    /// See [`Exchange::begin`].
    fn exchange(&mut self, parts: Vec<Tensor>) -> Result<Vec<Tensor>, ExchangeError> {
        self.begin(parts)?;
        self.end()
    }

    /// Sends `message` to every process, and returns the messages of all processes, by rank. All
    /// exchanges that were begun must have been ended before.
    ///
    /// # Errors
    /// If a process has ended.
    fn gather(&mut self, message: Vec<u8>) -> Result<Vec<Vec<u8>>, ExchangeError>;

    /// Sends `message` from process 0 to every process, and returns it; the others' arguments are
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

/// One process that trains by itself.
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
