//! What the loop trains on: micro-batches, fetched by position.

use serde::{Deserialize, Serialize};
use taper_model::Batch;

use crate::BoxError;

/// A place in the data: which pass over it, and which micro-batch of that pass. Both count from 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Position {
    /// The pass over the data.
    pub epoch: u64,
    /// The micro-batch within the pass.
    pub index: u64,
}

/// Training data, addressed by position.
///
/// The same position must always give the same micro-batch: this is what lets a resumed run
/// continue where it stopped without replaying anything.
pub trait Source {
    /// The number of micro-batches in pass `epoch`, which must be above 0.
    ///
    /// # Errors
    /// Whatever keeps the data from being read.
    fn batches(&mut self, epoch: u64) -> Result<u64, BoxError>;

    /// The micro-batch at `position`.
    ///
    /// # Errors
    /// Whatever keeps the data from being read.
    fn batch(&mut self, position: Position) -> Result<Batch, BoxError>;
}
