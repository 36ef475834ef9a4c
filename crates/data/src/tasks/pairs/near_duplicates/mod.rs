//! Finds pairs that nearly repeat an earlier pair. MinHash finds candidates, and their shingles
//! (overlapping pieces of text) confirm them.
//!
//! **Decision.** An earlier pair is a candidate if it has the same values in a band, which is a
//! group of MinHash values. Then the exact Jaccard index of the two pairs is computed from the
//! texts on disk. So a pair is dropped only if its similarity reaches the threshold, and memory
//! holds only the keys of bands, not the texts. The share of equal MinHash values would only
//! estimate the Jaccard index: with 40 values, its standard error is 0.06 at an index of 0.8.

mod bands;
mod shingles;
mod texts;

use std::cmp::Reverse;
use std::path::Path;

use self::bands::{BandTable, Bands};
use self::shingles::{are_near, shingle_set, shingles};
use self::texts::StoredTexts;
use crate::Result;

/// Largest number of earlier pairs with which a pair is compared. The candidates that share the
/// most keys are taken first. There are more candidates than this in lists that were made from a
/// template.
const MOST_COMPARED: usize = 24;

/// Computes the keys of a pair. Similar pairs have keys in common.
///
/// The keys depend only on the text and the threshold.
#[derive(Debug, Clone)]
pub struct NearKeys {
    bands: Bands,
}

impl NearKeys {
    /// Keys that find pairs with a Jaccard index of at least `threshold`.
    pub fn new(threshold: f64) -> Self {
        Self { bands: Bands::new(threshold) }
    }

    /// Number of keys of a pair.
    pub(crate) fn count(&self) -> usize {
        self.bands.keys_of_a_set()
    }

    /// Keys of a pair.
    pub fn for_pair(&self, source: &str, target: &str) -> Vec<u32> {
        self.bands.keys(&shingles(source, target))
    }
}

/// Pairs that are not similar to each other, with which later pairs are compared.
///
/// A million pairs at a threshold of 0.8, with nine keys each, take 104 to 208 MB of memory, and
/// half as much again while the table is doubled. The texts themselves are on disk.
#[derive(Debug)]
pub struct NearDuplicates {
    threshold: f64,
    table: BandTable,
    texts: StoredTexts,
}

impl NearDuplicates {
    /// Makes an empty collection. The texts are in a file next to `path`, which is deleted when the
    /// collection is dropped.
    ///
    /// # Errors
    ///
    /// If the file cannot be made.
    pub fn new(threshold: f64, path: &Path) -> Result<Self> {
        Ok(Self { threshold, table: BandTable::new(), texts: StoredTexts::beside(path)? })
    }

    /// Adds a pair unless it is similar to a pair of the collection. Returns true if the pair was
    /// added. `keys` must be the keys of the pair by [`NearKeys`] with the same threshold.
    ///
    /// A pair that is not added has a Jaccard index of at least the threshold with a pair of the
    /// collection. If the index is exactly the threshold, the similar pair is found with
    /// probability 0.95; above the threshold the probability is higher, and equal pairs are always
    /// found. These probabilities are lower if the collection has many pairs that were made from
    /// one template, because the number of pairs under a key and the number of comparisons are
    /// limited.
    ///
    /// # Errors
    ///
    /// If the texts cannot be written or read.
    pub fn take(&mut self, keys: &[u32], source: &str, target: &str) -> Result<bool> {
        let mut candidates: Vec<u32> = keys.iter().flat_map(|&key| self.table.pairs(key)).collect();
        candidates.sort_unstable();
        let own = if candidates.is_empty() { Vec::new() } else { shingle_set(source, target) };
        let equal: Vec<u32> =
            keys.last().map_or_else(Vec::new, |&all| self.table.pairs(all).collect());
        // Pairs with all hashes in common come first, then pairs with the most bands in common.
        let ranked = candidates.chunk_by(|one, other| one == other);
        let mut ranked: Vec<(bool, usize, u32)> =
            ranked.map(|all| (equal.contains(&all[0]), all.len(), all[0])).collect();
        ranked.sort_unstable_by_key(|&(is_equal, bands, pair)| {
            (Reverse(is_equal), Reverse(bands), pair)
        });
        for (.., pair) in ranked.into_iter().take(MOST_COMPARED) {
            let (source, target) = self.texts.read(pair as usize)?;
            if are_near(&own, &shingle_set(&source, &target), self.threshold) {
                return Ok(false);
            }
        }
        // A split with more than 2^31 - 1 pairs is refused when it is opened.
        let number = self.texts.len() as u32;
        self.texts.push(source, target)?;
        keys.iter().for_each(|&key| self.table.insert(key, number));
        Ok(true)
    }
}

#[cfg(test)]
mod tests;
