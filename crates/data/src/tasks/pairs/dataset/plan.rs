//! Batches of an epoch: the division of pairs into batches, and their order.

use crate::{Batch, BatchingConfig, BatchingReport, Epoch, PairDataset, Result};

/// Batches of one epoch. They depend only on the data set, the settings, the seed and the epoch, so
/// any batch can be requested without the batches before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PairPlan {
    /// Epoch for which pairs are changed; `None` if the data set does not change pairs.
    epoch: Option<Epoch>,
    /// Pairs of the epoch, batch after batch.
    order: Vec<u32>,
    /// For each batch, the range of its pairs in `order`. The batches are in the order in which the
    /// epoch uses them.
    batches: Vec<(u32, u32)>,
}

/// Purpose numbers (see [`Epoch::draws`]) of the random draws of a plan. The draws shuffle pairs,
/// vary lengths before sorting, and shuffle batches.
mod purpose {
    pub(super) const PAIRS: u64 = 1;
    pub(super) const LENGTHS: u64 = 2;
    pub(super) const BATCHES: u64 = 3;
}

impl PairPlan {
    /// Plans an epoch.
    ///
    /// Pairs are shuffled. Then they are sorted by length, after each length was multiplied by a
    /// random factor within `1 ± length_noise / 2`. Then they are divided into batches that are as
    /// full as the budget of tokens allows, and finally the batches are shuffled. So pairs of equal
    /// length are combined differently in each epoch. A pair that exceeds the budget is a batch by
    /// itself.
    pub fn new(dataset: &PairDataset, config: &BatchingConfig, epoch: Epoch) -> Self {
        let pairs = dataset.pairs_in(epoch);
        let pair_at = |place: u32| pairs.as_ref().map_or(place, |pairs| pairs[place as usize]);
        // At first, `order` has places in the epoch, not pairs, so a pair that occurs twice gets
        // two different random factors.
        let count = pairs.as_ref().map_or(dataset.len(), Vec::len);
        let mut order: Vec<u32> = (0..count as u32).collect();
        if config.shuffle {
            epoch.draws(purpose::PAIRS).shuffle(&mut order);
            if config.group_by_length {
                let noise = epoch.draws(purpose::LENGTHS);
                order.sort_by_cached_key(|&place| {
                    let (source, target) = lengths(dataset, pair_at(place));
                    let factor = 1.0 + config.length_noise * (noise.unit(u64::from(place)) - 0.5);
                    // Lengths in units of 1/16 token are fine enough for sorting, and they are
                    // integers, which can be compared. The length of the target is compared first,
                    // because the decoder and the output layer cost most.
                    let scale = |length: usize| (length as f64 * factor * 16.0) as u32;
                    (scale(target), scale(source))
                });
            }
        }
        order.iter_mut().for_each(|place| *place = pair_at(*place));
        let mut batches = cut(dataset, config, &order);
        if config.shuffle {
            epoch.draws(purpose::BATCHES).shuffle(&mut batches);
        }
        Self { epoch: dataset.varies().then_some(epoch), order, batches }
    }

    /// The number of batches.
    pub fn len(&self) -> usize {
        self.batches.len()
    }

    /// True if there is no batch, which happens only for a data set without pairs.
    pub fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// Pairs of a batch, numbered as in [`PairDataset::pair`].
    ///
    /// # Panics
    ///
    /// If `batch` is not below [`PairPlan::len`].
    pub fn members(&self, batch: usize) -> &[u32] {
        let (from, to) = self.batches[batch];
        &self.order[from as usize..to as usize]
    }

    /// Assembles a batch from the data set that the plan was made for.
    ///
    /// # Errors
    ///
    /// If the data set can no longer be read.
    ///
    /// # Panics
    ///
    /// If `batch` is not below [`PairPlan::len`].
    pub fn batch(&self, dataset: &PairDataset, batch: usize) -> Result<Batch> {
        dataset.batch(self.members(batch), self.epoch)
    }

    /// Numbers of source and target tokens of a batch, including the special tokens of each
    /// sentence.
    ///
    /// # Panics
    ///
    /// If `batch` is not below [`PairPlan::len`].
    pub(crate) fn tokens(&self, dataset: &PairDataset, batch: usize) -> (usize, usize) {
        self.members(batch)
            .iter()
            .map(|&pair| lengths(dataset, pair))
            .fold((0, 0), |(sources, targets), (source, target)| {
                (sources + source, targets + target)
            })
    }

    /// Measures the batches of this epoch.
    pub(crate) fn report(&self, dataset: &PairDataset) -> BatchingReport {
        let mut report = BatchingReport { batches: self.len(), ..BatchingReport::default() };
        let (mut real, mut padded) = (0_u64, 0_u64);
        for batch in 0..self.len() {
            let members = self.members(batch);
            let mut total = (0, 0);
            let mut longest = (0, 0);
            for &pair in members {
                let (source, target) = lengths(dataset, pair);
                total = (total.0 + source, total.1 + target);
                longest = (longest.0.max(source), longest.1.max(target));
            }
            real += (total.0 + total.1) as u64;
            padded += ((longest.0 + longest.1) * members.len()) as u64;
            report.largest_source_tokens = report.largest_source_tokens.max(total.0);
            report.largest_target_tokens = report.largest_target_tokens.max(total.1);
            report.largest_sentences = report.largest_sentences.max(members.len());
            report.longest_source = report.longest_source.max(longest.0);
            report.longest_target = report.longest_target.max(longest.1);
        }
        report.padding_cost = (padded - real) as f64 / padded.max(1) as f64;
        report
    }
}

/// Lengths of the rows of a pair, including special tokens.
fn lengths(dataset: &PairDataset, pair: u32) -> (usize, usize) {
    dataset.row_lengths(pair as usize)
}

/// Divides pairs in a given order into batches. Each batch takes as many pairs as the limits allow.
fn cut(dataset: &PairDataset, config: &BatchingConfig, order: &[u32]) -> Vec<(u32, u32)> {
    let limit = match config.max_sentences {
        0 => usize::MAX,
        limit => limit,
    };
    let budget = config.planned_tokens();
    let mut batches = Vec::new();
    let (mut from, mut source_total, mut target_total) = (0, 0, 0);
    for (place, &pair) in order.iter().enumerate() {
        let (source, target) = lengths(dataset, pair);
        let fits =
            (source_total + source).max(target_total + target) <= budget && place - from < limit;
        if !fits && place > from {
            batches.push((from as u32, place as u32));
            (from, source_total, target_total) = (place, 0, 0);
        }
        source_total += source;
        target_total += target;
    }
    if from < order.len() {
        batches.push((from as u32, order.len() as u32));
    }
    batches
}
