//! Normaliser of a row of logits, `ln Σ exp(logit)`. A beam search computes it over the whole
//! vocabulary, for every hypothesis and every step.

use crate::float::{Float, vectorised};
use crate::sums::{blocked_max, blocked_sum};

/// Number of logits in a block, for [`block_maxima`].
pub const BLOCK: usize = 64;

/// Number of exponentials that are summed in f32, before their sum is added to the total in f64.
const SUMMED: usize = 256;

/// Returns the largest logit of each block of [`BLOCK`] logits; the last block can be shorter. NaN
/// is skipped; if all logits of a block are NaN, its maximum is −∞.
///
/// # Shapes
/// `logits (V,)` → `(⌈V / BLOCK⌉,)`.
#[must_use]
pub fn block_maxima(logits: &[f32]) -> Vec<f32> {
    let mut maxima = vec![f32::NEG_INFINITY; logits.len().div_ceil(BLOCK)];
    fill_maxima(logits, &mut maxima);
    maxima
}

/// Computes `ln Σ exp(logits)`, given the largest logit; `None` if the row is not a distribution:
/// if it contains NaN or `+inf`, or only `-inf`.
///
/// # Shapes
/// `logits (V,)` → a number.
#[must_use]
pub fn log_normalizer(logits: &[f32], largest: f32) -> Option<f64> {
    if !largest.is_finite() {
        return None;
    }
    // Only logits close to the largest one matter, so f32 exponentials of the differences suffice.
    // The total is in f64, because it has as many terms as the vocabulary has tokens. If a logit is
    // NaN, so is the sum.
    let mut sum = 0.0;
    for block in logits.chunks(SUMMED) {
        sum += f64::from(sum_of_exponentials(block, largest));
    }
    sum.is_finite().then(|| f64::from(largest) + sum.ln())
}

/// Computes `exp(x)` for `-87 ≤ x ≤ 0`, with an error of at most two units in the last place;
/// returns 0 for smaller `x`. The result is the same on every machine.
#[must_use]
pub fn exponential(x: f32) -> f32 {
    Float::exp(x)
}

vectorised! {
    fn fill_maxima<T>(values: &[T], maxima: &mut [T]) {
        for (block, largest) in values.chunks(BLOCK).zip(maxima) {
            *largest = blocked_max(block);
        }
    }
}

vectorised! {
    fn sum_of_exponentials<T>(values: &[T], largest: T) -> T {
        blocked_sum([values], |[value]| (value - largest).exp())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normalizer(logits: &[f32]) -> Option<f64> {
        log_normalizer(logits, block_maxima(logits).into_iter().fold(f32::NEG_INFINITY, f32::max))
    }

    #[test]
    fn a_long_row_has_the_normaliser_of_f64() {
        let row: Vec<f32> = (0..8003).map(|i| ((i * 7919) % 1000) as f32 * 0.02 - 12.0).collect();
        let expected = row.iter().map(|&x| f64::from(x).exp()).sum::<f64>().ln();
        let ours = normalizer(&row).expect("finite");
        assert!((ours - expected).abs() < 1e-6, "{ours} {expected}");
    }

    #[test]
    fn rows_that_are_no_distribution_are_refused() {
        assert!(normalizer(&[0.0, f32::NAN, 1.0]).is_none());
        assert!(normalizer(&[f32::NAN]).is_none());
        assert!(normalizer(&[0.0, f32::INFINITY]).is_none());
        assert!(normalizer(&[f32::NEG_INFINITY; 3]).is_none());
        assert!(normalizer(&[f32::NEG_INFINITY, 1.0]).is_some());
    }
}
