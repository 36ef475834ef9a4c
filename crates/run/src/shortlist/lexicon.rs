//! Translation probabilities of tokens: IBM model 1 (Brown et al. 1993, "The Mathematics of
//! Statistical Machine Translation", section 4).
//!
//! The model assumes that each target token of a sentence pair translates one of the source tokens
//! or the empty word. As long as the target token is not known, all of these are equally likely.
//! Expectation-maximisation finds `p(target | source)`.
//!
//! Expected counts are integers, in units of 2⁻³⁰. Their sums are exact, so no result depends on
//! the order of additions or on the number of threads. To bound the memory, each source token keeps
//! at most [`KEPT`] target tokens: those with the largest expected counts in the first iteration.
//! The choice is only approximate for a source token that occurs with more than twice [`KEPT`]
//! target tokens: its smallest counts are already dropped while pairs are read, and if a dropped
//! target token occurs again, it is counted from 0. The empty word keeps all target tokens.

use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use rayon::prelude::*;

/// Ids of a sentence and of its translation, without special tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TokenPair {
    pub(crate) source: Vec<u32>,
    pub(crate) target: Vec<u32>,
}

/// Pairs that can be read repeatedly.
pub(crate) trait Bitext {
    /// Calls `read` repeatedly, each time with the next few pairs, until it has received all pairs
    /// in order.
    ///
    /// # Errors
    /// When the pairs cannot be read, or `read` returns an error.
    fn read(&mut self, read: &mut dyn FnMut(&[TokenPair]) -> Result<()>) -> Result<()>;
}

/// Scale of expected counts: a count of 1 is stored as the integer `1 << UNIT`.
const UNIT: u32 = 30;
/// Number of target tokens that are kept for a source token.
pub(super) const KEPT: usize = 512;

/// Probabilities of target tokens for each source token.
#[derive(Debug)]
pub(crate) struct Lexicon {
    /// Index of the first entry of each source token and then of the empty word. The last element
    /// is the number of all entries.
    starts: Vec<usize>,
    /// Target tokens, ascending for each source token.
    targets: Vec<u32>,
    probabilities: Vec<f64>,
    /// Number of occurrences of each target token.
    pub(crate) occurrences: Vec<u64>,
    /// Number of pairs.
    pub(crate) pairs: u64,
}

impl Lexicon {
    /// Estimates the probabilities from `pairs` in `iterations` iterations (at least one).
    /// `sources` and `targets` are the sizes of the vocabularies. Before the first iteration, all
    /// target tokens are equally likely. `observe` is called with the number of the iteration,
    /// counted from 1, and the number of pairs that this iteration has read.
    ///
    /// # Errors
    /// When the pairs cannot be read.
    pub(crate) fn estimate(
        pairs: &mut dyn Bitext,
        (sources, targets): (usize, usize),
        iterations: usize,
        observe: &mut dyn FnMut(usize, u64),
    ) -> Result<Self> {
        let mut lexicon = Self::first(pairs, (sources, targets), &mut |done| observe(1, done))?;
        for iteration in 2..=iterations {
            lexicon.improve(pairs, &mut |done| observe(iteration, done))?;
        }
        Ok(lexicon)
    }

    /// Makes the first iteration, which also chooses the target tokens that each source token
    /// keeps.
    fn first(
        pairs: &mut dyn Bitext,
        (sources, targets): (usize, usize),
        observe: &mut dyn FnMut(u64),
    ) -> Result<Self> {
        let mut rows: Vec<Vec<(u32, u64)>> = vec![Vec::new(); sources + 1];
        let (mut occurrences, mut done) = (vec![0_u64; targets], 0);
        pairs.read(&mut |pairs| {
            let empty = sources as u32;
            let of_pair = |pair: &TokenPair| {
                let count = (1_u64 << UNIT) / (pair.source.len() as u64 + 1);
                let all = pair.source.iter().chain([&empty]);
                let counts = |&source: &u32| {
                    let key = move |&target: &u32| u64::from(source) << 32 | u64::from(target);
                    pair.target.iter().map(move |target| (key(target), count)).collect::<Vec<_>>()
                };
                all.flat_map(counts).collect::<Vec<(u64, u64)>>()
            };
            let mut counts: Vec<(u64, u64)> = pairs.par_iter().flat_map_iter(of_pair).collect();
            counts.par_sort_unstable();
            for of_source in counts.chunk_by(|(one, _), (other, _)| one >> 32 == other >> 32) {
                let source = (of_source[0].0 >> 32) as usize;
                let new = of_source.chunk_by(|(one, _), (other, _)| one == other);
                let new = new.map(|same| (same[0].0 as u32, same.iter().map(|one| one.1).sum()));
                merge(&mut rows[source], new);
                if source < sources && rows[source].len() > 2 * KEPT {
                    keep_largest(&mut rows[source], KEPT);
                }
            }
            for &target in pairs.iter().flat_map(|pair| &pair.target) {
                occurrences[target as usize] += 1;
            }
            done += pairs.len() as u64;
            observe(done);
            Ok(())
        })?;
        rows.iter_mut().take(sources).for_each(|row| keep_largest(row, KEPT));
        Ok(Self::from_rows(&rows, occurrences, done))
    }

    fn from_rows(rows: &[Vec<(u32, u64)>], occurrences: Vec<u64>, pairs: u64) -> Self {
        let mut lexicon = Self {
            starts: vec![0],
            targets: Vec::new(),
            probabilities: Vec::new(),
            occurrences,
            pairs,
        };
        for row in rows {
            let counts: Vec<u64> = row.iter().map(|&(_, count)| count).collect();
            lexicon.targets.extend(row.iter().map(|&(target, _)| target));
            lexicon.probabilities.extend(shares(&counts));
            lexicon.starts.push(lexicon.targets.len());
        }
        lexicon
    }

    /// Makes one more iteration.
    fn improve(&mut self, pairs: &mut dyn Bitext, observe: &mut dyn FnMut(u64)) -> Result<()> {
        let counts: Vec<AtomicU64> = self.targets.iter().map(|_| AtomicU64::new(0)).collect();
        let mut done = 0;
        pairs.read(&mut |pairs| {
            pairs.par_iter().for_each(|pair| self.count(pair, &counts));
            done += pairs.len() as u64;
            observe(done);
            Ok(())
        })?;
        let counts: Vec<u64> = counts.into_iter().map(AtomicU64::into_inner).collect();
        self.probabilities =
            self.starts.windows(2).flat_map(|ends| shares(&counts[ends[0]..ends[1]])).collect();
        Ok(())
    }

    /// Adds the expected counts of a pair to `counts` (Brown et al. 1993, equation 17).
    fn count(&self, pair: &TokenPair, counts: &[AtomicU64]) {
        let empty = self.starts.len().saturating_sub(2) as u32;
        let mut entries: Vec<(usize, f64)> = Vec::with_capacity(pair.source.len() + 1);
        for &target in &pair.target {
            entries.clear();
            let all = pair.source.iter().copied().chain([empty]);
            let entry = |source| self.entry(source, target);
            entries.extend(all.filter_map(entry).map(|entry| (entry, self.probabilities[entry])));
            let sum: f64 = entries.iter().map(|(_, probability)| probability).sum();
            if sum > 0.0 {
                for &(entry, probability) in &entries {
                    let count = (probability / sum * f64::from(1_u32 << UNIT)).round() as u64;
                    counts[entry].fetch_add(count, Ordering::Relaxed);
                }
            }
        }
    }

    fn entry(&self, source: u32, target: u32) -> Option<usize> {
        let (start, end) = self.range(source)?;
        self.targets[start..end].binary_search(&target).ok().map(|index| start + index)
    }

    fn range(&self, source: u32) -> Option<(usize, usize)> {
        Some((*self.starts.get(source as usize)?, *self.starts.get(source as usize + 1)?))
    }

    /// Probability that `source` is translated by `target`. The id after the last source token
    /// stands for the empty word.
    #[cfg(test)]
    pub(crate) fn probability(&self, source: u32, target: u32) -> f64 {
        self.entry(source, target).map_or(0.0, |entry| self.probabilities[entry])
    }

    /// The `count` likeliest translations of a source token, in the order of decreasing
    /// probability. Of equally likely translations, the one with the lower id comes first.
    /// Translations of probability 0 are omitted.
    pub(crate) fn best(&self, source: u32, count: usize) -> Vec<u32> {
        let (start, end) = self.range(source).unwrap_or((0, 0));
        let entries = self.targets[start..end].iter().zip(&self.probabilities[start..end]);
        let mut entries: Vec<(u32, f64)> =
            entries.map(|(&target, &share)| (target, share)).filter(|one| one.1 > 0.0).collect();
        // The sort is stable, and targets are ascending.
        entries.sort_by(|(_, one), (_, other)| other.total_cmp(one));
        entries.into_iter().take(count).map(|(target, _)| target).collect()
    }

    /// The `count` target tokens that occur most often, in the order of decreasing frequency. Of
    /// equally frequent tokens, the one with the lower id comes first. Tokens that do not occur are
    /// omitted.
    pub(crate) fn frequent(&self, count: usize) -> Vec<u32> {
        let mut tokens: Vec<(u64, u32)> =
            self.occurrences.iter().copied().zip(0..).filter(|one| one.0 > 0).collect();
        tokens.sort_by_key(|&(occurrences, token)| (std::cmp::Reverse(occurrences), token));
        tokens.into_iter().take(count).map(|(_, token)| token).collect()
    }
}

/// Divides counts by their sum. If the sum is 0, all shares are 0.
fn shares(counts: &[u64]) -> Vec<f64> {
    let sum: u64 = counts.iter().sum();
    let sum = sum.max(1) as f64;
    counts.iter().map(|&count| count as f64 / sum).collect()
}

/// Adds the counts `new` to the counts in `row`. Both are in ascending order of ids.
fn merge(row: &mut Vec<(u32, u64)>, new: impl Iterator<Item = (u32, u64)>) {
    let mut merged = Vec::with_capacity(row.len());
    let mut old = row.iter().copied().peekable();
    for (target, count) in new {
        while let Some(before) = old.next_if(|one| one.0 < target) {
            merged.push(before);
        }
        let same = old.next_if(|one| one.0 == target).map_or(0, |one| one.1);
        merged.push((target, same + count));
    }
    merged.extend(old);
    *row = merged;
}

/// Keeps the `most` largest counts of a row, in ascending order of ids. Of equal counts, those with
/// lower ids are kept.
fn keep_largest(row: &mut Vec<(u32, u64)>, most: usize) {
    if row.len() > most {
        row.sort_by_key(|&(target, count)| (std::cmp::Reverse(count), target));
        row.truncate(most);
        row.sort_unstable_by_key(|&(target, _)| target);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pairs in memory, read a few at a time.
    pub(crate) struct Pairs(Vec<TokenPair>, usize);

    impl Bitext for Pairs {
        fn read(&mut self, read: &mut dyn FnMut(&[TokenPair]) -> Result<()>) -> Result<()> {
            self.0.chunks(self.1).try_for_each(read)
        }
    }

    fn pairs(pairs: &[(&[u32], &[u32])], at_once: usize) -> Pairs {
        let pair = |&(source, target): &(&[u32], &[u32])| TokenPair {
            source: source.to_vec(),
            target: target.to_vec(),
        };
        Pairs(pairs.iter().map(pair).collect(), at_once)
    }

    fn estimate(mut pairs: Pairs, sizes: (usize, usize), iterations: usize) -> Lexicon {
        Lexicon::estimate(&mut pairs, sizes, iterations, &mut |_, _| ()).expect("readable")
    }

    /// Two pairs, `0 1 → 0 1` and `0 → 0`, computed by hand. The empty word is source 2.
    ///
    /// In the first iteration, each target token of the first pair counts 1/3 for 0, for 1 and for
    /// the empty word. The target token of the second pair counts 1/2 for 0 and for the empty word.
    /// So `p(0 | 0)` is `(1/3 + 1/2) / (2/3 + 1/2) = 5/7`, and `p(1 | 0)` is 2/7. The
    /// probabilities for the empty word are the same, and `p(· | 1)` is 1/2.
    ///
    /// In the second iteration, target 0 of the first pair counts
    /// `5/7 / (5/7 + 5/7 + 1/2) = 10/27` for 0, and target 1 counts
    /// `2/7 / (2/7 + 2/7 + 1/2) = 4/15`.
    #[test]
    fn two_iterations_are_those_computed_by_hand() {
        let text = [(&[0, 1][..], &[0, 1][..]), (&[0][..], &[0][..])];
        let close = |lexicon: &Lexicon, source, target, expected: f64| {
            let probability = lexicon.probability(source, target);
            assert!((probability - expected).abs() < 1e-8, "{source} {target}: {probability}");
        };
        let first = estimate(pairs(&text, 1), (2, 2), 1);
        for (source, expected) in
            [(0, [5.0 / 7.0, 2.0 / 7.0]), (1, [0.5; 2]), (2, [5.0 / 7.0, 2.0 / 7.0])]
        {
            close(&first, source, 0, expected[0]);
            close(&first, source, 1, expected[1]);
        }
        let second = estimate(pairs(&text, 2), (2, 2), 2);
        let (zero, one) = (10.0 / 27.0 + 0.5, 4.0 / 15.0);
        close(&second, 0, 0, zero / (zero + one));
        close(&second, 0, 1, one / (zero + one));
        let (zero, one) = (7.0 / 27.0, 7.0 / 15.0);
        close(&second, 1, 0, zero / (zero + one));
        assert_eq!(second.best(1, 1), [1]);
        assert_eq!(second.best(1, 5), [1, 0]);
        assert_eq!((second.frequent(5), second.pairs), (vec![0, 1], 2));
        assert!(second.best(7, 2).is_empty());
    }

    #[derive(serde::Deserialize)]
    struct Golden {
        pairs: Vec<[Vec<u32>; 2]>,
        sizes: (usize, usize),
        iterations: usize,
        /// Entries with a source token, a target token and a probability. The empty word has the id
        /// after the last source token.
        table: Vec<(u32, u32, f64)>,
    }

    /// Checks that all probabilities equal those of IBM model 1 in the library NLTK. Also checks
    /// that they do not depend, in any bit, on the number of threads, or on how many pairs are read
    /// at a time.
    #[test]
    fn probabilities_are_those_of_another_implementation() {
        let golden = include_str!("../../tests/golden/lexicon.json");
        let golden: Golden = serde_json::from_str(golden).expect("golden");
        let text: Vec<(&[u32], &[u32])> =
            golden.pairs.iter().map(|[source, target]| (&**source, &**target)).collect();
        let bits = |threads: usize, at_once: usize| -> Vec<u64> {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("pool");
            let lexicon =
                pool.install(|| estimate(pairs(&text, at_once), golden.sizes, golden.iterations));
            for &(source, target, expected) in &golden.table {
                let probability = lexicon.probability(source, target);
                assert!((probability - expected).abs() < 1e-6, "{source} {target}: {probability}");
            }
            lexicon.probabilities.iter().map(|one| one.to_bits()).collect()
        };
        let expected = bits(1, 1000);
        assert!(expected.len() > 100 && golden.table.len() > 100);
        for (threads, at_once) in [(1, 1), (2, 7), (5, 1000)] {
            assert!(bits(threads, at_once) == expected, "{threads} {at_once}");
        }
    }

    #[test]
    fn only_the_largest_counts_are_kept() {
        let mut row = vec![(1, 5), (3, 9), (4, 5), (8, 7)];
        merge(&mut row, [(0, 1), (3, 1), (9, 9)].into_iter());
        assert_eq!(row, [(0, 1), (1, 5), (3, 10), (4, 5), (8, 7), (9, 9)]);
        keep_largest(&mut row, 4);
        assert_eq!(row, [(1, 5), (3, 10), (8, 7), (9, 9)]);
        // A source token that occurs with everything keeps a bounded number of target tokens.
        let many: Vec<[Vec<u32>; 2]> = (0..3000).map(|target| [vec![0], vec![target]]).collect();
        let text: Vec<(&[u32], &[u32])> =
            many.iter().map(|[source, target]| (&**source, &**target)).collect();
        let lexicon = estimate(pairs(&text, 100), (1, 3000), 2);
        assert_eq!(lexicon.range(0), Some((0, KEPT)));
        assert_eq!(lexicon.range(1), Some((KEPT, KEPT + 3000)));
    }
}
