//! Statistics of many trials: means, intervals and p-values, with the precision and the order of
//! sums of NumPy and Python.

use crate::real::{Real, ResampledScore};
use crate::resampling::Confidence;

/// Scores of resamples, all in one type as in NumPy's array: double precision if any score is
/// double.
#[derive(Debug)]
pub(crate) enum ResampledScores {
    Single(Vec<f32>),
    Double(Vec<f64>),
}

impl ResampledScores {
    /// Converts samples to one type.
    pub(crate) fn new(samples: &[ResampledScore]) -> Self {
        let single = samples.iter().map(|sample| match sample {
            ResampledScore::Single(score) => Some(*score),
            ResampledScore::Double(_) => None,
        });
        match single.collect() {
            Some(scores) => Self::Single(scores),
            None => Self::Double(samples.iter().map(|sample| sample.wide()).collect()),
        }
    }

    /// Confidence interval of a system in a paired test.
    pub(crate) fn confidence(&self) -> Confidence {
        match self {
            Self::Single(scores) => interval(&sorted(scores)),
            Self::Double(scores) => interval(&sorted(scores)),
        }
    }

    /// Confidence interval of a system without a paired test. Its mean is computed like that of
    /// Python's `statistics.mean`, not like that of NumPy.
    pub(crate) fn confidence_alone(&self) -> Confidence {
        let mean = exact_mean(&self.to_double());
        match self {
            Self::Single(scores) => {
                Confidence { mean: f64::from(mean as f32), half_width: half_width(&sorted(scores)) }
            }
            Self::Double(scores) => Confidence { mean, half_width: half_width(&sorted(scores)) },
        }
    }

    fn to_double(&self) -> Vec<f64> {
        match self {
            Self::Single(scores) => scores.iter().map(|score| score.wide()).collect(),
            Self::Double(scores) => scores.clone(),
        }
    }
}

/// Probability under resampling that a difference larger than `actual` arises by chance.
pub(crate) fn bootstrap_p_value(
    baseline: &ResampledScores,
    system: &ResampledScores,
    actual: f64,
) -> f64 {
    /// Absolute differences minus their mean, because the null hypothesis is that there is no
    /// difference.
    fn centred<R: Real>(baseline: &[R], system: &[R]) -> Vec<R> {
        let differences: Vec<R> =
            baseline.iter().zip(system).map(|(&left, &right)| absolute(right - left)).collect();
        let mean = mean(&differences);
        differences.into_iter().map(|difference| difference - mean).collect()
    }
    match (baseline, system) {
        (ResampledScores::Single(baseline), ResampledScores::Single(system)) => {
            p_value(&centred(baseline, system), actual.abs() as f32)
        }
        _ => p_value(&centred(&baseline.to_double(), &system.to_double()), actual.abs()),
    }
}

/// Share of trials whose difference exceeds the actual difference. One is added to the number of
/// such trials and to the number of all trials, so that the share is never 0.
pub(crate) fn p_value<R: Real>(differences: &[R], actual: R) -> f64 {
    let exceeding = differences.iter().filter(|&&difference| difference > actual).count();
    (exceeding + 1) as f64 / (differences.len() + 1) as f64
}

fn absolute<R: Real>(value: R) -> R {
    let zero = R::from_f64(0.0);
    if value < zero { zero - value } else { value }
}

/// Sorts numbers in ascending order.
fn sorted<R: Real>(values: &[R]) -> Vec<R> {
    let mut sorted = values.to_vec();
    sorted.sort_by(|left, right| left.wide().total_cmp(&right.wide()));
    sorted
}

/// Mean of sorted scores, and half-width of their central 95 %.
fn interval<R: Real>(sorted: &[R]) -> Confidence {
    Confidence { mean: mean(sorted).wide(), half_width: half_width(sorted) }
}

/// Half the width of the interval that holds the central 95 % of sorted scores.
fn half_width<R: Real>(sorted: &[R]) -> f64 {
    let tail = sorted.len() / 40;
    (R::from_f64(0.5) * (sorted[sorted.len() - tail - 1] - sorted[tail])).wide()
}

/// Computes the mean as NumPy does: with pairwise sums, in the precision of the values.
fn mean<R: Real>(values: &[R]) -> R {
    R::from_f64(pairwise_sum(values).wide() / values.len() as f64)
}

/// Sums numbers in the order of NumPy. A run of more than 128 numbers is first divided into two
/// halves. The numbers of a shorter run are distributed over eight sums, which are then added.
fn pairwise_sum<R: Real>(values: &[R]) -> R {
    const STRANDS: usize = 8;
    const BLOCK: usize = 128;
    let plain = |sum: R, rest: &[R]| rest.iter().fold(sum, |sum, &value| sum + value);
    if values.len() < STRANDS {
        return plain(R::from_f64(0.0), values);
    }
    if values.len() > BLOCK {
        let half = values.len() / 2;
        let (left, right) = values.split_at(half - half % STRANDS);
        return pairwise_sum(left) + pairwise_sum(right);
    }
    let mut strands = [R::from_f64(0.0); STRANDS];
    let chunks = values.chunks_exact(STRANDS);
    let rest = chunks.remainder();
    for chunk in chunks {
        for (strand, &value) in strands.iter_mut().zip(chunk) {
            *strand += value;
        }
    }
    let [a, b, c, d, e, f, g, h] = strands;
    plain(((a + b) + (c + d)) + ((e + f) + (g + h)), rest)
}

/// Computes the mean as Python's `statistics.mean` does, rounded only once. For this, the sum is
/// kept in two doubles.
fn exact_mean(values: &[f64]) -> f64 {
    let (mut sum, mut error) = (0.0_f64, 0.0_f64);
    for &value in values {
        let next = sum + value;
        let part = next - sum;
        error += (sum - (next - part)) + (value - part);
        sum = next;
    }
    let count = values.len() as f64;
    let quotient = sum / count;
    let remainder = (-quotient).mul_add(count, sum) + error;
    quotient + remainder / count
}
