//! Pairs that nearly repeat an earlier one, found by MinHash and confirmed by their shingles.
//!
//! **Decision.** Candidates share a band of smallest hashes. Each candidate is then checked by the
//! exact Jaccard index of the two texts, computed from the text on disk. So no pair is dropped that
//! is less similar than the threshold, and memory holds only the keys of bands, and no text.
//! Trusting the share of equal smallest hashes was rejected: with 40 hashes it is off by 0.06 at
//! 0.8.

mod bands;
mod shingles;
mod texts;

use std::cmp::Reverse;
use std::path::Path;

use self::bands::{BandTable, Bands};
use self::shingles::{are_near, shingle_set, shingles};
use self::texts::StoredTexts;
use crate::Result;

/// Largest number of earlier pairs that a pair is compared with: those that share the most keys. If
/// there are more, a list is made from a template.
const MOST_COMPARED: usize = 24;

/// Keys that find the earlier pairs to which a pair may be similar.
///
/// The keys depend only on the text and the threshold.
#[derive(Debug, Clone)]
pub struct NearKeys {
    bands: Bands,
}

impl NearKeys {
    /// Keys for pairs of at least this Jaccard index.
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
/// Memory for a million pairs at a threshold of 0.8, with nine keys each: 104 to 208 MB, and half
/// as much again while the table is doubled. The texts themselves are on disk.
#[derive(Debug)]
pub struct NearDuplicates {
    threshold: f64,
    table: BandTable,
    texts: StoredTexts,
}

impl NearDuplicates {
    /// Makes an empty collection; the texts are kept in a file next to `path` until it is dropped.
    ///
    /// # Errors
    ///
    /// If the file cannot be made.
    pub fn new(threshold: f64, path: &Path) -> Result<Self> {
        Ok(Self { threshold, table: BandTable::new(), texts: StoredTexts::beside(path)? })
    }

    /// Takes a pair unless it is similar to one that was taken; returns whether it was taken.
    /// `keys` are those of [`NearKeys`] for the same threshold.
    ///
    /// A rejected pair has a Jaccard index of at least the threshold with a pair that was taken.
    /// Two pairs exactly at the threshold are found with probability 0.95, more similar pairs with
    /// a higher probability, and equal pairs always. In lists of hundreds of pairs that are made
    /// from a template, fewer are found.
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
        // Pairs with all hashes in common come first, then those with the most bands.
        let ranked = candidates.chunk_by(|one, other| one == other);
        let mut ranked: Vec<(bool, usize, u32)> =
            ranked.map(|all| (equal.contains(&all[0]), all.len(), all[0])).collect();
        ranked.sort_unstable_by_key(|&(is_equal, bands, pair)| {
            (Reverse(is_equal), Reverse(bands), pair)
        });
        for (.., pair) in ranked.into_iter().take(MOST_COMPARED) {
            let text = self.texts.read(pair as usize)?;
            // No text has a line break.
            let (source, target) = text.split_once('\n').unwrap_or((&text, ""));
            if are_near(&own, &shingle_set(source, target), self.threshold) {
                return Ok(false);
            }
        }
        // A split has at most 2^31 - 1 pairs.
        let number = self.texts.len() as u32;
        self.texts.push(&format!("{source}\n{target}"))?;
        keys.iter().for_each(|&key| self.table.insert(key, number));
        Ok(true)
    }
}

#[cfg(test)]
mod tests;
