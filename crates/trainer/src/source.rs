//! Source of training data: micro-batches, fetched by position.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use taper_model::Batch;

use crate::BoxError;

/// Place in the data: a pass over it, and a micro-batch of that pass. Both count from 0.
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
    /// Number of micro-batches in pass `epoch`; must be above 0.
    ///
    /// # Errors
    /// If the data cannot be read.
    fn batches(&mut self, epoch: u64) -> Result<u64, BoxError>;

    /// Puts the micro-batches at `places`, which form an update, into the order of the update's
    /// leaves. This process requests the leaves in `own` next; in the next update it requests the
    /// same number of leaves.
    ///
    /// The result depends only on the places and the data. A source that knows costs sorts the
    /// micro-batches so that processes have equal work, like [`balanced`]; otherwise they keep
    /// their order.
    ///
    /// [`balanced`]: crate::balanced
    ///
    /// # Errors
    /// If the data cannot be read.
    fn arrange(&mut self, _places: &mut [Position], _own: Range<usize>) -> Result<(), BoxError> {
        Ok(())
    }

    /// The micro-batch at `position`.
    ///
    /// # Errors
    /// If the data cannot be read.
    fn batch(&mut self, position: Position) -> Result<Batch, BoxError>;
}
