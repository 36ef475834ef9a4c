//! Source of training data, from which micro-batches are requested by their positions.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use taper_model::Batch;

use crate::BoxError;

/// Position of a micro-batch in the data. Epochs and micro-batches are counted from 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Position {
    /// Epoch (pass over the data).
    pub epoch: u64,
    /// Index of the micro-batch in the epoch.
    pub index: u64,
}

/// Training data from which micro-batches are requested by their positions.
///
/// The same position must always give the same micro-batch. So a resumed run continues at its
/// position without reading the earlier data again.
pub trait Source {
    /// Returns the number of micro-batches in epoch `epoch`. The number must be above 0.
    ///
    /// # Errors
    /// If the data cannot be read.
    fn batches(&mut self, epoch: u64) -> Result<u64, BoxError>;

    /// Sorts the positions `_places` of an update's micro-batches. In the resulting order, the
    /// micro-batches become the leaves of the binary tree along which the update's gradients are
    /// summed.
    ///
    /// `_own`: range of the leaves that this process computes, and whose micro-batches it requests
    /// next. In the next update, it usually computes the same range of leaves.
    ///
    /// The order must depend only on the positions and the data. A source that knows the costs of
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

    /// Returns the micro-batch at `position`.
    ///
    /// # Errors
    /// If the data cannot be read.
    fn batch(&mut self, position: Position) -> Result<Batch, BoxError>;
}
