//! Counts n-grams without making a string for each of them.
//!
//! Symbols are numbers (interned words, or code points). An n-gram is represented by two integers:
//! the identifier of the n-gram without its last symbol, and the last symbol. A table gives each
//! such pair a new identifier, counted from 1. So n-grams of all orders have small identifiers, and
//! two different n-grams never have the same one.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Identifier of the empty n-gram; identifiers of other n-grams start at 1.
const ROOT: u32 = 0;

/// Hasher of one 64-bit key by multiplication. It is not protected against keys that were chosen to
/// collide, because users do not choose the keys.
#[derive(Default)]
struct PairHasher(u64);

impl Hasher for PairHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u64(&mut self, key: u64) {
        let mixed = (self.0 ^ key ^ (key >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 29);
    }
}

/// Ids of distinct words, valid during the life of a counter.
#[derive(Debug, Default, Clone)]
pub(crate) struct Vocabulary {
    numbers: HashMap<Box<str>, u32>,
}

impl Vocabulary {
    /// Id of a word; a new word gets a new id.
    pub(crate) fn number(&mut self, word: &str) -> u32 {
        if let Some(&number) = self.numbers.get(word) {
            return number;
        }
        let number = self.numbers.len() as u32;
        self.numbers.insert(word.into(), number);
        number
    }
}

/// N-grams of one hypothesis, with the count of each in the references.
#[derive(Default, Clone)]
pub(crate) struct NgramMatcher {
    identifiers: HashMap<u64, u32, BuildHasherDefault<PairHasher>>,
    /// For each n-gram, its order minus one. The entry of the n-gram with the identifier i has the
    /// index i - 1, here and in the lists below.
    orders: Vec<usize>,
    hypothesis: Vec<u32>,
    reference: Vec<u32>,
    /// For each n-gram, the largest count in any of the references that were added so far.
    best: Vec<u32>,
}

/// Table key of the n-gram that appends `symbol` to `prefix`.
fn pair(prefix: u32, symbol: u32) -> u64 {
    (u64::from(prefix) << 32) | u64::from(symbol)
}

impl NgramMatcher {
    /// Starts a segment: counts the hypothesis's n-grams of orders 1 to `max_order`.
    pub(crate) fn start(&mut self, symbols: &[u32], max_order: usize) {
        self.identifiers.clear();
        self.orders.clear();
        self.hypothesis.clear();
        self.count_more(symbols, max_order);
        self.best.clear();
        self.best.resize(self.orders.len(), 0);
    }

    /// Adds n-grams of orders 1 to `max_order` to those of the hypothesis.
    fn count_more(&mut self, symbols: &[u32], max_order: usize) {
        for start in 0..symbols.len() {
            let mut prefix = ROOT;
            for (order, &symbol) in symbols[start..].iter().take(max_order).enumerate() {
                let next = self.orders.len() as u32 + 1;
                let identifier = *self.identifiers.entry(pair(prefix, symbol)).or_insert(next);
                if identifier == next {
                    self.orders.push(order);
                    self.hypothesis.push(0);
                }
                self.hypothesis[identifier as usize - 1] += 1;
                prefix = identifier;
            }
        }
    }

    /// Counts the n-grams of one reference, but only those that the hypothesis has.
    ///
    /// An n-gram that the hypothesis lacks cannot be the prefix of an n-gram that it has. So for
    /// each start position, counting ends at the first n-gram that the hypothesis lacks.
    pub(crate) fn count_reference(&mut self, symbols: &[u32], max_order: usize) {
        self.reference.clear();
        self.reference.resize(self.orders.len(), 0);
        for start in 0..symbols.len() {
            let mut prefix = ROOT;
            for &symbol in symbols[start..].iter().take(max_order) {
                let Some(&identifier) = self.identifiers.get(&pair(prefix, symbol)) else {
                    break;
                };
                self.reference[identifier as usize - 1] += 1;
                prefix = identifier;
            }
        }
    }

    /// Updates the largest counts over all references with the counts of the reference that was
    /// counted last.
    pub(crate) fn keep_largest(&mut self) {
        for (best, &count) in self.best.iter_mut().zip(&self.reference) {
            *best = (*best).max(count);
        }
    }

    /// Adds the number of matches of each order to `matches`. Matches are clipped by the counts of
    /// the reference that was counted last.
    pub(crate) fn add_matches(&self, matches: &mut [f64]) {
        self.add_clipped(&self.reference, matches);
    }

    /// Adds the number of matches of each order to `matches`. Matches are clipped by the largest
    /// counts in any reference.
    pub(crate) fn add_best_matches(&self, matches: &mut [f64]) {
        self.add_clipped(&self.best, matches);
    }

    fn add_clipped(&self, limits: &[u32], matches: &mut [f64]) {
        for ((&order, &count), &limit) in self.orders.iter().zip(&self.hypothesis).zip(limits) {
            matches[order] += f64::from(count.min(limit));
        }
    }
}

/// N-grams of several texts, with the weighted mean of their counts.
#[derive(Default, Clone)]
pub(crate) struct MeanNgrams {
    ngrams: NgramMatcher,
    means: Vec<f64>,
}

impl MeanNgrams {
    /// Adds the n-grams of a text, whose share of the total weight is `share`, from 0 to 1.
    pub(crate) fn add(&mut self, symbols: &[u32], max_order: usize, share: f64) {
        self.ngrams.count_more(symbols, max_order);
        self.means.resize(self.ngrams.orders.len(), 0.0);
        for (mean, count) in self.means.iter_mut().zip(&mut self.ngrams.hypothesis) {
            *mean += share * f64::from(std::mem::take(count));
        }
    }

    /// Adds the matches of each order between a text and the n-grams to `matches`. Matches are
    /// clipped by the mean counts of the n-grams.
    pub(crate) fn add_matches(&mut self, symbols: &[u32], max_order: usize, matches: &mut [f64]) {
        self.ngrams.count_reference(symbols, max_order);
        let counts = self.ngrams.orders.iter().zip(&self.ngrams.reference);
        for ((&order, &count), &mean) in counts.zip(&self.means) {
            matches[order] += mean.min(f64::from(count));
        }
    }
}

/// Number of n-grams of the given order in a sequence of the given length.
pub(crate) fn ngram_total(length: usize, order: usize) -> f64 {
    (length + 1).saturating_sub(order) as f64
}

#[cfg(test)]
mod tests {
    use super::{NgramMatcher, ngram_total};

    #[test]
    fn matches_are_clipped_by_the_largest_reference_count() {
        let mut matcher = NgramMatcher::default();
        matcher.start(&[1, 1, 1, 2], 2);
        matcher.count_reference(&[1, 1, 3], 2);
        let mut first = [0.0, 0.0];
        matcher.add_matches(&mut first);
        assert_eq!(first, [2.0, 1.0]);
        matcher.keep_largest();
        matcher.count_reference(&[1, 2], 2);
        matcher.keep_largest();
        let mut best = [0.0, 0.0];
        matcher.add_best_matches(&mut best);
        assert_eq!(best, [3.0, 2.0]);
    }

    #[test]
    fn totals_are_zero_for_short_sequences() {
        assert_eq!([1, 2, 3, 4].map(|order| ngram_total(2, order)), [2.0, 1.0, 0.0, 0.0]);
    }
}
