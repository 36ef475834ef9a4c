//! What processes that train one model together tell each other.
//!
//! An update's micro-batches are shared out, each process sums the gradients of its own in the
//! subtrees of one fixed tree, pieces of the sums are exchanged so that each process has one piece
//! of all, and it makes the optimizer's step on that piece (Rajbhandari et al. 2020, "ZeRO", section
//! 5.1). Everything that is decided is decided on values that every process has. So the result is
//! the same to the bit however many processes there are; one is the trivial case.
//!
//! The alternative, the reductions that MPI and NCCL offer, was rejected: the order of their sums
//! depends on the number of processes and on the network.

mod in_process;
mod share;

use candle_core::Tensor;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::TrainError;

pub use in_process::{InProcess, in_process};
pub(crate) use share::{Piece, halves, leaves_of, nodes_of};

/// The other processes could not be heard.
#[derive(Debug, Error)]
pub enum ExchangeError {
    /// One has ended, or fails.
    #[error("process {rank} of the training has ended: see what it says")]
    Lost {
        /// Its rank.
        rank: usize,
    },
    /// What one sent is not what was expected: it is another version of this program.
    #[error(
        "process {rank} sent what this one does not understand: start the same program on each"
    )]
    Garbled {
        /// Its rank.
        rank: usize,
    },
    /// A tensor could not be moved.
    #[error(transparent)]
    Tensor(#[from] candle_core::Error),
}

/// The connection to the processes that train the same model.
///
/// All of them call the same methods in the same order; each call waits until every process has
/// made it.
pub trait Exchange: Send {
    /// The number of this process, from 0. Process 0 measures, prints and writes for all.
    fn rank(&self) -> usize;

    /// How many processes there are.
    fn size(&self) -> usize;

    /// Gives `parts[r]` to process `r`, and returns what each process has for this one, by rank.
    ///
    /// # Shapes
    /// Parts are flat and f32, `(length,)`; their lengths may differ, also 0.
    ///
    /// # Errors
    /// A process has ended, or the device has no memory left.
    fn exchange(&mut self, parts: Vec<Tensor>) -> Result<Vec<Tensor>, ExchangeError>;

    /// Tells every process `message`, and returns what each has said, by rank.
    ///
    /// # Errors
    /// A process has ended.
    fn gather(&mut self, message: Vec<u8>) -> Result<Vec<Vec<u8>>, ExchangeError>;

    /// What process 0 says.
    ///
    /// # Errors
    /// As [`Exchange::gather`].
    fn broadcast(&mut self, message: Vec<u8>) -> Result<Vec<u8>, ExchangeError> {
        let message = if self.rank() == 0 { message } else { Vec::new() };
        Ok(self.gather(message)?.swap_remove(0))
    }

    /// Waits for every process.
    ///
    /// # Errors
    /// As [`Exchange::gather`].
    fn barrier(&mut self) -> Result<(), ExchangeError> {
        self.gather(Vec::new()).map(drop)
    }
}

/// One process that trains by itself.
#[derive(Debug, Clone, Copy, Default)]
pub struct Alone;

impl Exchange for Alone {
    fn rank(&self) -> usize {
        0
    }

    fn size(&self) -> usize {
        1
    }

    fn exchange(&mut self, parts: Vec<Tensor>) -> Result<Vec<Tensor>, ExchangeError> {
        Ok(parts)
    }

    fn gather(&mut self, message: Vec<u8>) -> Result<Vec<Vec<u8>>, ExchangeError> {
        Ok(vec![message])
    }
}

/// What each process has for `fact`, by rank.
pub(crate) fn everyone<T: Serialize + for<'de> Deserialize<'de>>(
    exchange: &mut dyn Exchange,
    fact: T,
) -> Result<Vec<T>, ExchangeError> {
    if exchange.size() == 1 {
        return Ok(vec![fact]);
    }
    let rank = exchange.rank();
    let message = serde_json::to_vec(&fact).map_err(|_| ExchangeError::Garbled { rank })?;
    let said = exchange.gather(message)?.into_iter().enumerate();
    said.map(|(rank, said)| {
        serde_json::from_slice(&said).map_err(|_| ExchangeError::Garbled { rank })
    })
    .collect()
}

/// `result`, if every process has one. Where a process has an error, no process goes on: it gets
/// its own error, and the others are told of it.
pub(crate) fn agree<T>(
    exchange: &mut dyn Exchange,
    result: Result<T, TrainError>,
) -> Result<T, TrainError> {
    let failed = everyone(exchange, result.is_err())?;
    match (result, failed.iter().position(|&failed| failed)) {
        (Ok(_), Some(rank)) => Err(ExchangeError::Lost { rank }.into()),
        (result, _) => result,
    }
}

/// What process 0 gets from `work`, which it alone does.
pub(crate) fn by_the_first<T: Serialize + for<'de> Deserialize<'de>>(
    exchange: &mut dyn Exchange,
    work: impl FnOnce() -> Result<T, TrainError>,
) -> Result<T, TrainError> {
    if exchange.size() == 1 {
        return work();
    }
    // One or none: JSON cannot tell `Some(())` from `None`.
    let done = if exchange.rank() == 0 { work().map(|done| vec![done]) } else { Ok(Vec::new()) };
    let done = agree(exchange, done)?;
    let told = everyone(exchange, done)?.swap_remove(0).pop();
    told.ok_or_else(|| ExchangeError::Garbled { rank: 0 }.into())
}
