//! A tokenised split: ids by pair, from a mapped file.

use std::path::Path;

use crate::cache::{Cache, Key};
use crate::subwords::SubwordSampler;
use crate::{Batch, BatchingConfig, DataReport, Epoch, EpochPlan, Result};

/// The epoch that the report takes as its example, under seed 0.
const EXAMPLE: u64 = 0;

/// The pairs of a split that cleaning kept, as ids without special tokens.
///
/// The ids stay on disk until they are used, so a data set may be larger than memory.
#[derive(Debug)]
pub struct Dataset {
    cache: Cache,
    report: DataReport,
    /// What segments pairs anew in each epoch, where that is asked for.
    sampler: Option<SubwordSampler>,
}

impl Dataset {
    /// Opens the cache at `path`, if it is whole and has this key.
    pub(crate) fn open(path: &Path, key: &Key, batching: &BatchingConfig) -> Result<Option<Self>> {
        Ok(Cache::open(path, key)?.map(|(cache, report)| {
            let mut dataset = Self { cache, report, sampler: None };
            // Batching settings are no part of the cache, so that changing them costs no tokenising.
            let plan = EpochPlan::new(&dataset, batching, 0, EXAMPLE);
            dataset.report.batching = plan.report(&dataset);
            dataset
        }))
    }

    /// The same pairs, segmented at random in the batches of an epoch.
    pub(crate) fn with_sampler(self, sampler: Option<SubwordSampler>) -> Self {
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

    /// The source ids of a pair.
    ///
    /// # Panics
    ///
    /// If `pair` is not below [`Dataset::len`], as for every method that takes one.
    pub fn source(&self, pair: usize) -> Vec<u32> {
        let entry = self.cache.entry(pair);
        self.cache.ids(entry.first, entry.source).collect()
    }

    /// The target ids of a pair.
    pub fn target(&self, pair: usize) -> Vec<u32> {
        let entry = self.cache.entry(pair);
        let first = entry.first + u64::from(entry.source);
        self.cache.ids(first, entry.target).collect()
    }

    /// The number of source ids of a pair.
    pub fn source_length(&self, pair: usize) -> usize {
        self.cache.entry(pair).source as usize
    }

    /// The number of target ids of a pair.
    pub fn target_length(&self, pair: usize) -> usize {
        self.cache.entry(pair).target as usize
    }

    /// The line of a pair in the corpus, counted from 1.
    pub fn line(&self, pair: usize) -> u64 {
        self.cache.entry(pair).line
    }

    /// Whether pairs are segmented at random.
    pub(crate) fn samples_subwords(&self) -> bool {
        self.sampler.is_some()
    }

    /// The batch of these pairs, in this order, segmented as `epoch` sees them; without one, or where subwords are
    /// not sampled, as the tokenizer does.
    pub fn batch(&self, pairs: &[u32], epoch: Option<Epoch>) -> Batch {
        let mut batch = Batch::default();
        for &pair in pairs {
            let pair = pair as usize;
            let (mut source, mut target, line) = (self.source(pair), self.target(pair), self.line(pair));
            if let (Some(sampler), Some(epoch)) = (&self.sampler, epoch) {
                (source, target) = sampler.segment(source, target, epoch, line);
            }
            batch.push(&source, &target, line);
        }
        batch
    }
}
