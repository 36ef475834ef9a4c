//! Expected scores of the best hypotheses alone. Hypotheses that are unlikely to be among the best
//! are dropped early, after comparisons with few references (Cheng and Vlachos 2023, "Faster
//! Minimum Bayes Risk Decoding with Confidence-based Pruning").

use crate::error::{MetricError, Result};
use crate::metric::{Metric, Segment};

/// Settings by which hypotheses are dropped.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pruning<'a> {
    /// Confidence `α`, above 0 and at most 1: a hypothesis is dropped if it loses against the
    /// present best in a larger share of the resamples. 1: nothing is dropped.
    pub confidence: f64,
    /// Number of samples of the first step, at least 1. Each further step has twice as many, and the
    /// last step has all.
    pub references: usize,
    /// Number of resamples in each step, at least 1. A resample has as many samples as the step,
    /// drawn from these with replacement.
    pub resamples: usize,
    /// Number of hypotheses that are never dropped: those with the highest expected scores in the
    /// step. At least one is always left, because the best one loses in no resample.
    pub kept: usize,
    /// Number for each hypothesis that is added to its expected score when hypotheses are compared,
    /// such as a score by another criterion; empty to add nothing.
    pub added: &'a [f64],
}

/// Expected scores of the hypotheses that were not dropped.
#[derive(Debug, Clone, PartialEq)]
pub struct PrunedScores {
    /// Expected score of each hypothesis, the same as by [`expected_scores`]; `None` if the
    /// hypothesis was dropped.
    ///
    /// [`expected_scores`]: crate::expected_scores
    pub expected: Vec<Option<f64>>,
    /// Number of comparisons of a hypothesis with a reference. Without pruning, each hypothesis is
    /// compared with each distinct reference.
    pub comparisons: usize,
}

impl Pruning<'_> {
    fn check(&self) -> Result<()> {
        let invalid = |option, value: String, expected| {
            Err(MetricError::InvalidOption { option, value, expected })
        };
        if !(self.confidence > 0.0 && self.confidence <= 1.0) {
            return invalid(
                "confidence",
                self.confidence.to_string(),
                "it is above 0 and at most 1",
            );
        }
        for (option, value) in [("references", self.references), ("resamples", self.resamples)] {
            if value == 0 {
                return invalid(option, value.to_string(), "it is at least 1");
            }
        }
        Ok(())
    }

    /// Whether a hypothesis that loses in `losses` resamples is dropped.
    fn drops(&self, losses: usize) -> bool {
        losses as f64 > self.confidence * self.resamples as f64
    }
}

/// For each hypothesis that is not dropped, the mean of its sentence scores against the single
/// references. `references` are the distinct texts of samples, and `samples` has the index of each
/// sample's text, in the order in which samples are used. This order must be random: the first
/// samples must represent all.
///
/// `draw(number, bound)` returns a random number below `bound`. `number` counts the draws from 0;
/// the same numbers must give the same results. Samples of a resample are drawn one after the
/// other, and resample after resample.
///
/// # Errors
/// When an option is out of range, or there is no sample.
pub fn pruned_expected_scores(
    metric: &dyn Metric,
    hypotheses: &[&str],
    (references, samples): (&[&str], &[usize]),
    pruning: &Pruning<'_>,
    draw: impl FnMut(u64, usize) -> usize,
) -> Result<PrunedScores> {
    metric.check()?;
    pruning.check()?;
    if samples.is_empty() {
        return Err(MetricError::SegmentWithoutReference { segment: 1 });
    }
    let mut counter = metric.counter();
    let mut row = vec![0.0; metric.columns()];
    let mut score = |hypothesis, reference| {
        counter.count(&Segment { hypothesis, references: vec![reference] }, &mut row);
        metric.value(&row)
    };
    let mut resampling = Resampling { draw, drawn: 0 };
    let mut live = Live::new(hypotheses.len(), references.len());
    let mut comparisons = 0;
    let mut step = pruning.references;
    for (index, &sample) in samples.iter().enumerate() {
        if index == step {
            live.prune(pruning, &mut resampling);
            step = step.saturating_mul(2);
        }
        if live.columns[sample].is_empty() {
            let scores =
                live.hypotheses.iter().map(|&at| score(hypotheses[at], references[sample]));
            live.columns[sample] = scores.collect();
            comparisons += live.hypotheses.len();
        }
        live.samples.push(sample);
    }
    let mut expected = vec![None; hypotheses.len()];
    for (&hypothesis, mean) in live.hypotheses.iter().zip(live.means()) {
        expected[hypothesis] = Some(mean);
    }
    Ok(PrunedScores { expected, comparisons })
}

/// Random draws, numbered one after the other.
struct Resampling<F> {
    draw: F,
    drawn: u64,
}

impl<F: FnMut(u64, usize) -> usize> Resampling<F> {
    fn below(&mut self, bound: usize) -> usize {
        let number = (self.draw)(self.drawn, bound);
        self.drawn += 1;
        number
    }
}

/// Hypotheses that are not dropped yet, with their scores.
struct Live {
    /// Indices of the hypotheses, in ascending order.
    hypotheses: Vec<usize>,
    /// For each reference, the scores of these hypotheses; empty if no sample so far is this text.
    columns: Vec<Vec<f64>>,
    /// For each sample so far, the index of its text among the references.
    samples: Vec<usize>,
}

impl Live {
    fn new(hypotheses: usize, references: usize) -> Self {
        Self {
            hypotheses: (0..hypotheses).collect(),
            columns: vec![Vec::new(); references],
            samples: Vec::new(),
        }
    }

    /// Expected score of each hypothesis by the samples so far.
    fn means(&self) -> Vec<f64> {
        let mut counts = vec![0.0; self.columns.len()];
        self.samples.iter().for_each(|&sample| counts[sample] += 1.0);
        self.weighted(&counts)
    }

    /// Mean of each hypothesis's scores, where each reference counts as often as `counts` says.
    /// Scores are summed in the order of the references, as in
    /// [`expected_scores`](crate::expected_scores), so that the result is the same to the bit.
    fn weighted(&self, counts: &[f64]) -> Vec<f64> {
        let mut sums = vec![0.0; self.hypotheses.len()];
        for (column, &count) in self.columns.iter().zip(counts) {
            if count > 0.0 {
                sums.iter_mut().zip(column).for_each(|(sum, score)| *sum += count * score);
            }
        }
        let total = self.samples.len() as f64;
        sums.iter_mut().for_each(|sum| *sum /= total);
        sums
    }

    /// Drops hypotheses that are unlikely to have the highest score (algorithm 1 of Cheng and
    /// Vlachos 2023, whose win probability is estimated by algorithm 2).
    fn prune(
        &mut self,
        pruning: &Pruning<'_>,
        resampling: &mut Resampling<impl FnMut(u64, usize) -> usize>,
    ) {
        // With a confidence of 1, losses in all resamples are not enough.
        if self.hypotheses.len() <= pruning.kept.max(1) || !pruning.drops(pruning.resamples) {
            return;
        }
        let added = |hypothesis: usize| pruning.added.get(hypothesis).copied().unwrap_or(0.0);
        let added: Vec<f64> = self.hypotheses.iter().map(|&hypothesis| added(hypothesis)).collect();
        let compared = |mut means: Vec<f64>| {
            means.iter_mut().zip(&added).for_each(|(mean, added)| *mean += added);
            means
        };
        let means = compared(self.means());
        let mut ranks: Vec<usize> = (0..means.len()).collect();
        ranks.sort_by(|&one, &other| means[other].total_cmp(&means[one]));
        let best = ranks[0];
        let mut losses = vec![0; means.len()];
        let mut counts = vec![0.0; self.columns.len()];
        for _ in 0..pruning.resamples {
            counts.fill(0.0);
            for _ in 0..self.samples.len() {
                counts[self.samples[resampling.below(self.samples.len())]] += 1.0;
            }
            let values = compared(self.weighted(&counts));
            losses.iter_mut().zip(&values).for_each(|(lost, value)| {
                *lost += usize::from(*value < values[best]);
            });
        }
        let mut stays: Vec<bool> = losses.iter().map(|&losses| !pruning.drops(losses)).collect();
        ranks.iter().take(pruning.kept).for_each(|&rank| stays[rank] = true);
        let stay: Vec<usize> = (0..stays.len()).filter(|&index| stays[index]).collect();
        let of_live =
            |column: &[f64]| stay.iter().filter_map(|&at| column.get(at).copied()).collect();
        self.columns.iter_mut().for_each(|column| *column = of_live(column));
        self.hypotheses = stay.iter().map(|&index| self.hypotheses[index]).collect();
    }
}
