//! Utilities of the best candidates alone. The others are dropped after comparisons with few
//! samples.

use anyhow::Result;
use taper_decoding::PruningConfig;
use taper_metrics::{Metric, Pruning, pruned_expected_scores};
use taper_ops::rng::{Counter, mix};

/// Purpose of the random numbers, which keeps them apart from those of sampling: there, the index
/// of a sample is in this place, which is much smaller.
const PURPOSE: u64 = 0x7072_756e_6564;

/// Settings for dropping candidates.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pruner {
    settings: PruningConfig,
    /// Seed of random numbers.
    seed: u64,
    /// Number of candidates that are never dropped: those that are returned.
    kept: usize,
}

impl Pruner {
    pub(super) fn new(settings: PruningConfig, seed: u64, kept: usize) -> Self {
        Self { settings, seed, kept }
    }

    /// Expected score by `metric`, from 0 to 100, of each of the distinct `texts`; `None` for those
    /// that are dropped. `places` has the index of each sample's text. `added`: number for each
    /// text that is added to its expected score when texts are compared. `number`: number of the
    /// sentence, which determines the random numbers.
    pub(super) fn expected_scores(
        &self,
        metric: &dyn Metric,
        texts: &[&str],
        places: &[usize],
        added: &[f64],
        number: u64,
    ) -> Result<Vec<Option<f64>>> {
        let PruningConfig { confidence, references, resamples } = self.settings;
        let pruning = Pruning { confidence, references, resamples, kept: self.kept, added };
        let draws = Draws(Counter::new(mix(self.seed, &[number, PURPOSE])));
        let samples = draws.shuffled(places);
        let first = places.len() as u64;
        let draw = |index, bound| draws.below(first + index, bound);
        Ok(pruned_expected_scores(metric, texts, (texts, &samples), &pruning, draw)?.expected)
    }
}

/// Random numbers for one sentence.
struct Draws(Counter);

impl Draws {
    /// Random number below `bound`.
    fn below(&self, index: u64, bound: usize) -> usize {
        ((u128::from(self.0.u64_at(index)) * bound as u128) >> 64) as usize
    }

    /// Shuffles `items`, with one draw for each item. A search returns samples in the order of
    /// their scores, so the first samples of a list do not represent all.
    fn shuffled(&self, items: &[usize]) -> Vec<usize> {
        let mut items = items.to_vec();
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u64, last + 1));
        }
        items
    }
}
