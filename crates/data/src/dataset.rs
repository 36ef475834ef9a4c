//! A tokenised split: ids by pair, from a file.

use std::path::Path;

use crate::cache::{Cache, Key, Pair};
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

    /// Reads a pair.
    ///
    /// # Errors
    ///
    /// If the file cannot be read any more.
    ///
    /// # Panics
    ///
    /// If `pair` is not below [`Dataset::len`], as for every method that takes one.
    pub fn pair(&self, pair: usize) -> Result<Pair> {
        self.cache.read(pair)
    }

    /// The number of source ids of a pair.
    pub fn source_length(&self, pair: usize) -> usize {
        self.cache.entry(pair).source as usize
    }

    /// The number of target ids of a pair.
    pub fn target_length(&self, pair: usize) -> usize {
        self.cache.entry(pair).target as usize
    }

    /// Whether pairs are segmented at random.
    pub fn samples_subwords(&self) -> bool {
        self.sampler.is_some()
    }

    /// The batch of these pairs, in this order, segmented as `epoch` sees them; without one, or where subwords are
    /// not sampled, as the tokenizer does.
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
