//! Source of training data: micro-batches, fetched by position.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use taper_model::Batch;

use crate::BoxError;

/// Place in the data: a pass over the data, and a micro-batch of that pass. Both are counted from
/// 0.
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
/// The same position must always give the same micro-batch: then a resumed run can continue where
/// it stopped without reading the earlier data again.
pub trait Source {
    /// Number of micro-batches in pass `epoch`; must be above 0.
    ///
    /// # Errors
    /// If the data cannot be read.
    fn batches(&mut self, epoch: u64) -> Result<u64, BoxError>;

    /// Reorders the micro-batches at `_places`, which form an update: the result is the order in
    /// which they are the leaves of the tree that sums the update's gradients. This process
    /// requests the leaves in the range `_own` next; in the next update it will request as many.
    ///
    /// The order must depend only on the places and the data. A source that knows the costs of
    /// micro-batches sorts them so that processes have equal work, as [`balanced`] does; other
    /// sources leave the order unchanged.
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
