//! Significance of scores: bootstrap confidence intervals of one system, and paired tests of
//! systems against a baseline (Koehn, 2004; Riezler and Maxwell, 2005).
//!
//! Everything works on the statistics of any [`Metric`]. Random numbers, the order of sums and
//! their precision are those of sacreBLEU. So intervals and p-values agree digit for digit. The
//! sums of a resample are added row after row in single precision, which matters for counts above
//! 2^24. The sums of a shuffle are exact, because nearly all statistics are whole numbers. The
//! exception is TER's mean length of the references, which is rounded if the number of references
//! is not a power of two. Then sacreBLEU's own p-values depend on the order in which the BLAS
//! library of its machine adds these lengths. This affects only trials whose difference of scores
//! equals the actual difference except for rounding.

mod random;
mod resampled_scores;

use rayon::prelude::*;

use self::random::Generator;
use self::resampled_scores::{ResampledScores, bootstrap_p_value, p_value};
use crate::error::{MetricError, Result};
use crate::metric::Metric;
use crate::statistics::Statistics;

/// Default seed of sacreBLEU, which `SACREBLEU_SEED` overrides.
pub const DEFAULT_SEED: u64 = 12345;

/// Number of resamples or shuffles that are drawn sequentially before threads score them in
/// parallel.
const TRIALS_PER_BATCH: usize = 32;

/// Mean of resampled scores, and half the width of the interval of their central 95 %.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Confidence {
    /// The mean.
    pub mean: f64,
    /// Half the length of the interval.
    pub half_width: f64,
}

impl Confidence {
    /// Formats the interval as `μ = 36.2 ± 24.4`.
    pub fn text(&self, decimals: usize) -> String {
        format!("μ = {:.decimals$} ± {:.decimals$}", self.mean, self.half_width)
    }
}

/// Result of one system in a paired test.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Comparison {
    /// Score of the system.
    pub score: f64,
    /// Probability that chance alone gives a difference from the baseline at least as large as the
    /// observed one; `None` for the baseline itself.
    pub p_value: Option<f64>,
    /// Confidence interval; `None` if the test draws no bootstrap resamples.
    pub confidence: Option<Confidence>,
}

/// Computes the confidence interval of one system's score from bootstrap resamples.
///
/// # Errors
/// When `resamples` is zero, when there are no segments, or when they were counted with other
/// options.
pub fn confidence(
    metric: &dyn Metric,
    statistics: &Statistics,
    resamples: usize,
    seed: u64,
) -> Result<Confidence> {
    let samples = bootstrap(metric, &[statistics], resamples, seed)?;
    Ok(samples[0].confidence_alone())
}

/// Compares systems with the first of them by paired bootstrap resampling.
///
/// # Errors
/// Errors of [`confidence`], and when the systems do not have the same number of segments.
pub fn paired_bootstrap(
    metric: &dyn Metric,
    systems: &[&Statistics],
    resamples: usize,
    seed: u64,
) -> Result<Vec<Comparison>> {
    let scores = scores(metric, systems)?;
    let samples = bootstrap(metric, systems, resamples, seed)?;
    let compare = |(index, (&score, system)): (usize, (&f64, &ResampledScores))| Comparison {
        score,
        p_value: (index > 0).then(|| bootstrap_p_value(&samples[0], system, scores[0] - score)),
        confidence: Some(system.confidence()),
    };
    Ok(scores.iter().zip(&samples).enumerate().map(compare).collect())
}

/// Compares systems with the first of them by approximate randomisation. In each trial, segments
/// are swapped at random between the two systems, and the difference of their scores is computed.
///
/// # Errors
/// See [`paired_bootstrap`].
pub fn paired_randomization(
    metric: &dyn Metric,
    systems: &[&Statistics],
    trials: usize,
    seed: u64,
) -> Result<Vec<Comparison>> {
    let scores = scores(metric, systems)?;
    check_trials("trials", trials)?;
    let compare = |(index, (&score, system)): (usize, (&f64, &&Statistics))| {
        let p_value = if index == 0 {
            None
        } else {
            let differences = shuffled_differences(metric, systems[0], system, trials, seed)?;
            Some(p_value(&differences, (scores[0] - score).abs()))
        };
        Ok(Comparison { score, p_value, confidence: None })
    };
    scores.iter().zip(systems).enumerate().map(compare).collect()
}

/// Computes the scores of the systems, which must have the same segments.
fn scores(metric: &dyn Metric, systems: &[&Statistics]) -> Result<Vec<f64>> {
    for (index, system) in systems.iter().enumerate() {
        let (expected, found) = (systems[0].segments(), system.segments());
        if expected != found {
            return Err(MetricError::SegmentCount { system: index + 1, expected, found });
        }
    }
    systems.iter().map(|system| Ok(metric.value(&system.sums(metric)?))).collect()
}

/// Computes the scores of all systems on resamples of their segments, which are drawn with
/// replacement. A resample has the same segments for all systems.
fn bootstrap(
    metric: &dyn Metric,
    systems: &[&Statistics],
    resamples: usize,
    seed: u64,
) -> Result<Vec<ResampledScores>> {
    check_trials("resamples", resamples)?;
    let Some(first) = systems.first() else {
        return Ok(Vec::new());
    };
    let (segments, columns) = (first.segments(), metric.columns());
    let bound = u32::try_from(segments).map_err(|_| MetricError::InvalidOption {
        option: "segments",
        value: segments.to_string(),
        expected: "resample at most 2^32 - 1",
    })?;
    let mut tables = Vec::with_capacity(systems.len());
    for system in systems {
        system.check(metric)?;
        tables.push(system.rows().flatten().map(|&value| value as f32).collect::<Vec<f32>>());
    }
    let mut generator = Generator::new(seed);
    let mut samples = vec![Vec::with_capacity(resamples); systems.len()];
    let mut drawn = Vec::new();
    for start in (0..resamples).step_by(TRIALS_PER_BATCH) {
        let batch = TRIALS_PER_BATCH.min(resamples - start);
        drawn.clear();
        drawn.extend((0..batch * segments).map(|_| generator.below(bound)));
        for (table, samples) in tables.iter().zip(&mut samples) {
            let sample = |rows: &[u32]| metric.sample(&sums_of_rows(table, columns, rows));
            samples.extend(drawn.par_chunks_exact(segments).map(sample).collect::<Vec<_>>());
        }
    }
    Ok(samples.iter().map(|samples| ResampledScores::new(samples)).collect())
}

/// Adds up the rows with the indices `rows` of a table with `columns` columns, in this order.
fn sums_of_rows(table: &[f32], columns: usize, rows: &[u32]) -> Vec<f32> {
    let mut sums = vec![0.0; columns];
    for &row in rows {
        let start = row as usize * columns;
        for (sum, value) in sums.iter_mut().zip(&table[start..start + columns]) {
            *sum += value;
        }
    }
    sums
}

/// Swaps the segments of two systems at random, in each trial. Returns the absolute difference of
/// their scores in each trial.
fn shuffled_differences(
    metric: &dyn Metric,
    baseline: &Statistics,
    system: &Statistics,
    trials: usize,
    seed: u64,
) -> Result<Vec<f64>> {
    let (baseline_sums, system_sums) = (baseline.sums(metric)?, system.sums(metric)?);
    let columns = metric.columns();
    let changes: Vec<f64> = baseline
        .rows()
        .flatten()
        .zip(system.rows().flatten())
        .map(|(left, right)| left - right)
        .collect();
    let segments = system.segments();
    let words = segments.div_ceil(64);
    let mut bits = BitStream { generator: Generator::new(seed), pending: 0, pending_bits: 0 };
    let mut differences = Vec::with_capacity(trials);
    let mut masks = Vec::new();
    for start in (0..trials).step_by(TRIALS_PER_BATCH) {
        masks.clear();
        for _ in 0..TRIALS_PER_BATCH.min(trials - start) {
            masks.extend((0..words).map(|word| bits.take(64.min(segments - 64 * word))));
        }
        let difference = |mask: &[u64]| {
            // A trial compares two pseudo-systems. If a bit is set, the first has the baseline's
            // segment, and the second the system's; otherwise it is the other way round.
            let mut first = system_sums.clone();
            let mut second = baseline_sums.clone();
            for segment in set_bits(mask) {
                let change = &changes[segment * columns..(segment + 1) * columns];
                for ((first, second), change) in first.iter_mut().zip(&mut second).zip(change) {
                    *first += change;
                    *second -= change;
                }
            }
            (metric.shuffled_value(&first) - metric.shuffled_value(&second)).abs()
        };
        differences.extend(masks.par_chunks_exact(words).map(difference).collect::<Vec<_>>());
    }
    Ok(differences)
}

/// Positions of the bits that are 1, in ascending order. Position 0 is the lowest bit of the first
/// word.
fn set_bits(words: &[u64]) -> impl Iterator<Item = usize> {
    words.iter().enumerate().flat_map(|(index, &word)| {
        let mut word = word;
        std::iter::from_fn(move || {
            let bit = (word != 0).then(|| 64 * index + word.trailing_zeros() as usize)?;
            word &= word - 1;
            Some(bit)
        })
    })
}

/// Stream of random bits, equal to NumPy's `integers(2, dtype=bool)`. The bits of each drawn number
/// of 64 bits follow each other from the lowest to the highest.
struct BitStream {
    generator: Generator,
    /// Bits that were drawn but not used yet, fewer than 64.
    pending: u128,
    pending_bits: usize,
}

impl BitStream {
    /// Takes the next bits, at most 64; the first is the lowest.
    fn take(&mut self, count: usize) -> u64 {
        if self.pending_bits < count {
            self.pending |= u128::from(self.generator.next_u64()) << self.pending_bits;
            self.pending_bits += 64;
        }
        let bits = self.pending & ((1 << count) - 1);
        self.pending >>= count;
        self.pending_bits -= count;
        bits as u64
    }
}

/// Largest number of trials. It is far more than any test needs, and is limited because the result
/// of each trial is held in memory.
const MOST_TRIALS: usize = 100_000_000;

/// Checks that the number of trials is at least one, and not too large for memory.
fn check_trials(option: &'static str, count: usize) -> Result<()> {
    if !(1..=MOST_TRIALS).contains(&count) {
        return Err(MetricError::InvalidOption {
            option,
            value: count.to_string(),
            expected: "give 1 or more, at most 100,000,000",
        });
    }
    Ok(())
}
