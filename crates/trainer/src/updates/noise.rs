//! Gradient noise scale: the batch size, in target tokens, above which larger batches hardly
//! decrease the number of updates that a training needs.
//!
//! The gradient g of a batch with b target tokens is the true gradient G plus noise. If tr Σ is the
//! total variance of this noise for a single target token, the variance for the batch is tr Σ / b.
//! So E|g|² = |G|² + tr Σ / b (McCandlish et al. 2018, appendix A.1). This equation holds for the
//! gradients of micro-batches and for the gradient of the whole update, which have different values
//! of b. The two resulting equations determine the unknowns |G|² and tr Σ. The noise scale tr Σ /
//! |G|² is computed from means over many updates, because a single estimate of |G|² can be
//! negative.

use std::ops::AddAssign;

use serde::{Deserialize, Serialize};
use taper_ops::{Gradients, ParameterStore, global_norm};

use crate::{BoxError, exact};

/// Sums over updates of the estimates of tr Σ and |G|².
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GradientNoise {
    /// Sum of the estimates of tr Σ, for one target token.
    #[serde(with = "exact::number")]
    pub variance: f64,
    /// Sum of the estimates of |G|².
    #[serde(with = "exact::number")]
    pub signal: f64,
}

impl GradientNoise {
    /// Estimates tr Σ and |G|² from one update. Both estimates are 0 if fewer than two
    /// micro-batches have target tokens.
    ///
    /// The update's gradient is the sum of the shares of its micro-batches. `norm`: norm of the
    /// update's gradient. `micro_batches`: for each micro-batch, the number of its target tokens,
    /// and the norm of its share.
    pub(crate) fn estimate(micro_batches: impl Iterator<Item = (u64, f64)>, norm: f64) -> Self {
        let (mut count, mut total, mut square, mut inverse) = (0.0, 0.0, 0.0, 0.0);
        for (tokens, share) in micro_batches.filter(|&(tokens, _)| tokens > 0) {
            let tokens = tokens as f64;
            count += 1.0;
            total += tokens;
            square += (share / tokens).powi(2);
            inverse += 1.0 / tokens;
        }
        let square = square * total * total;
        if count < 2.0 {
            return Self::default();
        }
        let (square, inverse) = (square / count, inverse / count);
        let variance = (square - norm.powi(2)) / (inverse - 1.0 / total);
        Self { variance, signal: norm.powi(2) - variance / total }
    }

    /// Returns the noise scale, in target tokens. Returns `None` if there are no estimates, or if
    /// one of the sums is not positive, which can happen because the estimates are noisy.
    #[must_use]
    pub fn scale(&self) -> Option<f64> {
        (self.variance > 0.0 && self.signal > 0.0).then(|| self.variance / self.signal)
    }

    pub(crate) fn is_zero(&self) -> bool {
        *self == Self::default()
    }
}

impl AddAssign for GradientNoise {
    fn add_assign(&mut self, other: Self) {
        self.variance += other.variance;
        self.signal += other.signal;
    }
}

/// Returns the norm of the gradient `sum` of one micro-batch, without frozen parameters.
///
/// # Errors
/// If the device has too little memory.
pub(crate) fn norm_of(store: &ParameterStore, sum: &mut Gradients) -> Result<f64, BoxError> {
    let flat = store.without_frozen(&(0..store.len()), sum.flat()?.clone())?;
    Ok(global_norm(&flat)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes gradients of micro-batches for 1000 parameters. The true gradient is (30, 0, …), and
    /// the noise has the variance 4 for each parameter and target token.
    #[test]
    fn variance_and_signal_of_drawn_gradients_are_found() {
        let (parameters, mut sums) = (1000, GradientNoise::default());
        let mut draws = normal(7);
        for _ in 0..200 {
            let sizes = [3_u64, 5, 8];
            let total = sizes.iter().sum::<u64>() as f64;
            let mut gradient = vec![0.0; parameters];
            let micro_batches = sizes.map(|tokens| {
                let deviation = 2.0 / (tokens as f64).sqrt();
                let share = tokens as f64 / total;
                let mut square = 0.0;
                for (at, sum) in gradient.iter_mut().enumerate() {
                    let mean = if at == 0 { 30.0 } else { 0.0 };
                    let value = share * (mean + deviation * draws());
                    square += value * value;
                    *sum += value;
                }
                (tokens, square.sqrt())
            });
            let norm = gradient.iter().map(|value| value * value).sum::<f64>().sqrt();
            sums += GradientNoise::estimate(micro_batches.into_iter(), norm);
        }
        let expected = 4.0 * parameters as f64 / 900.0;
        let scale = sums.scale().expect("a scale");
        assert!((scale / expected - 1.0).abs() < 0.03, "{scale} {expected}");
    }

    #[test]
    fn one_micro_batch_tells_nothing() {
        assert!(GradientNoise::estimate([(5, 2.0), (0, 0.0)].into_iter(), 2.0).is_zero());
        assert_eq!(GradientNoise::default().scale(), None);
    }

    /// Draws from the normal distribution, by the method of Box and Muller.
    fn normal(seed: u64) -> impl FnMut() -> f64 {
        let mut state = seed;
        let mut uniform = move || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            ((state >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
        };
        move || (-2.0 * uniform().ln()).sqrt() * (std::f64::consts::TAU * uniform()).cos()
    }
}
