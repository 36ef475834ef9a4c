//! Packed batches on the host: rows of ids end to end, with their lengths.

use std::sync::Arc;

/// Sequences of token ids, concatenated without padding.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sequences {
    /// All ids, one sequence after the other.
    pub ids: Vec<u32>,
    /// Ids in each sequence; they sum to `ids.len()`.
    pub lengths: Vec<usize>,
}

impl Sequences {
    /// Packs rows.
    #[must_use]
    pub fn pack<R: AsRef<[u32]>>(rows: &[R]) -> Self {
        Self {
            ids: rows.iter().flat_map(|row| row.as_ref().iter().copied()).collect(),
            lengths: rows.iter().map(|row| row.as_ref().len()).collect(),
        }
    }

    /// The sequences, and then the same ones again.
    pub(crate) fn twice(&self) -> Self {
        Self { ids: self.ids.repeat(2), lengths: self.lengths.repeat(2) }
    }

    /// Whether the lengths sum to the ids.
    #[must_use]
    pub fn is_consistent(&self) -> bool {
        self.lengths.iter().sum::<usize>() == self.ids.len()
    }

    /// The position of each id in its sequence, from 0.
    #[must_use]
    pub fn positions(&self) -> Arc<[u32]> {
        self.lengths.iter().flat_map(|&length| 0..length as u32).collect()
    }
}
