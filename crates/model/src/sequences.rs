//! Packed sequences in main memory: their ids one after the other, and their lengths.

use std::sync::Arc;

use crate::{ModelError, Result};

/// Sequences of token ids, concatenated without padding.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sequences {
    /// All ids, one sequence after the other.
    pub ids: Vec<u32>,
    /// Number of ids in each sequence; these numbers sum to `ids.len()`.
    pub lengths: Vec<usize>,
}

impl Sequences {
    /// Packs `rows`, each of which is a sequence.
    #[must_use]
    pub fn pack<R: AsRef<[u32]>>(rows: &[R]) -> Self {
        Self {
            ids: rows.iter().flat_map(|row| row.as_ref().iter().copied()).collect(),
            lengths: rows.iter().map(|row| row.as_ref().len()).collect(),
        }
    }

    /// Returns all sequences, and then all of them again.
    pub(crate) fn twice(&self) -> Self {
        Self { ids: self.ids.repeat(2), lengths: self.lengths.repeat(2) }
    }

    /// Number of ids in the longest sequence.
    #[must_use]
    pub fn longest(&self) -> usize {
        self.lengths.iter().copied().max().unwrap_or(0)
    }

    /// Refuses lengths that do not sum to the number of ids.
    pub(crate) fn check(&self) -> Result<()> {
        let lengths = self.lengths.iter().sum();
        if lengths == self.ids.len() {
            Ok(())
        } else {
            Err(ModelError::Lengths { ids: self.ids.len(), lengths })
        }
    }

    /// Position of each id in its sequence, from 0.
    #[must_use]
    pub fn positions(&self) -> Arc<[u32]> {
        self.lengths.iter().flat_map(|&length| 0..length as u32).collect()
    }
}
