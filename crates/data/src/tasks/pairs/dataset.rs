//! A tokenised split: ids by pair, from a file.

use std::path::Path;

use crate::tasks::pairs::cache::{Pair, PairCache};
use crate::tasks::pairs::subwords::PairSampler;
use crate::text::cache::Key;
use crate::{Batch, BatchingConfig, DataReport, Epoch, EpochPlan, Result};

/// The seed of the epochs that the report takes as its examples.
const EXAMPLE: u64 = 0;

/// The pairs of a split that cleaning kept, as ids without special tokens.
///
/// The ids stay on disk until they are used, so a data set may be larger than memory.
#[derive(Debug)]
pub struct Dataset {
    cache: PairCache,
    report: DataReport,
    /// What segments pairs anew in each epoch, where that is asked for.
    sampler: Option<PairSampler>,
    /// So many epochs, the first, go in both directions.
    bidirectional_epochs: u64,
}

impl Dataset {
    /// Opens the cache at `path`, if it is whole and has this key, for so many epochs in both
    /// directions before the others.
    pub(crate) fn open(
        path: &Path,
        key: &Key,
        batching: &BatchingConfig,
        bidirectional_epochs: u64,
    ) -> Result<Option<Self>> {
        Ok(PairCache::open(path, key)?.map(|(cache, report)| {
            let mut dataset = Self { cache, report, sampler: None, bidirectional_epochs };
            // Batching settings are no part of the cache, so that changing them costs no
            // tokenising.
            let of = |epoch| EpochPlan::new(&dataset, batching, EXAMPLE, epoch).report(&dataset);
            let one_way = of(bidirectional_epochs);
            dataset.report.batching = match bidirectional_epochs {
                0 => one_way,
                epochs => one_way.after_bidirectional_epochs(epochs, &of(0)),
            };
            dataset
        }))
    }

    /// The same pairs, segmented at random in the batches of an epoch.
    pub(crate) fn with_sampler(self, sampler: Option<PairSampler>) -> Self {
        Self { sampler, ..self }
    }

    /// The number of pairs.
    pub fn len(&self) -> usize {
        self.cache.pairs()
    }

    /// Whether there is no pair; preparing a split refuses to end so.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What was read, kept and dropped, and how long sentences are.
    pub fn report(&self) -> &DataReport {
        &self.report
    }

    /// The number of pairs that an epoch goes through: those of the data set, and in a
    /// bidirectional epoch each of them turned round as well.
    pub fn pairs_in(&self, epoch: u64) -> usize {
        if epoch < self.bidirectional_epochs { 2 * self.len() } else { self.len() }
    }

    /// Reads a pair. From [`Dataset::len`] on the pairs come again, turned round: translated from
    /// the target language into the source language.
    ///
    /// # Errors
    ///
    /// If the file cannot be read any more.
    ///
    /// # Panics
    ///
    /// If `pair` is not below twice [`Dataset::len`], as for every method that takes one.
    pub fn pair(&self, pair: usize) -> Result<Pair> {
        let (pair, turned) = self.locate(pair);
        let read = self.cache.read(pair)?;
        Ok(if turned { Pair { source: read.target, target: read.source, ..read } } else { read })
    }

    /// The number of source ids of a pair.
    pub fn source_length(&self, pair: usize) -> usize {
        self.lengths(pair).0
    }

    /// The number of target ids of a pair.
    pub fn target_length(&self, pair: usize) -> usize {
        self.lengths(pair).1
    }

    /// The numbers of source and target ids of a pair.
    fn lengths(&self, pair: usize) -> (usize, usize) {
        let (pair, turned) = self.locate(pair);
        let entry = self.cache.entry(pair);
        let (source, target) = (entry.source as usize, entry.target as usize);
        if turned { (target, source) } else { (source, target) }
    }

    /// Where a pair stands in the cache, and whether it is turned round.
    fn locate(&self, pair: usize) -> (usize, bool) {
        match pair.checked_sub(self.len()) {
            Some(pair) => (pair, true),
            None => (pair, false),
        }
    }

    /// Whether pairs are segmented at random.
    pub fn samples_subwords(&self) -> bool {
        self.sampler.is_some()
    }

    /// The batch of these pairs, in this order, segmented as `epoch` sees them; without one, or
    /// where subwords are not sampled, as the tokenizer does.
    ///
    /// # Errors
    ///
    /// As for [`Dataset::pair`].
    pub fn batch(&self, pairs: &[u32], epoch: Option<Epoch>) -> Result<Batch> {
        let mut batch = Batch::default();
        for &pair in pairs {
            let Pair { line, mut source, mut target } = self.pair(pair as usize)?;
            if let (Some(sampler), Some(epoch)) = (&self.sampler, epoch) {
                (source, target) = sampler.segment(source, target, epoch, line);
            }
            batch.push(&source, &target, line);
        }
        Ok(batch)
    }
}
