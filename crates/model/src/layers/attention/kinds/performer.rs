//! Random features of a Performer (Choromanski et al. 2021, "Rethinking Attention with Performers",
//! FAVOR+), with which linear attention approximates a softmax over all keys. This file draws the
//! random vectors ω; the code of linear attention computes the features φ from them.
//!
//! ```text
//! exp(q·k) = E[φ(q)·φ(k)],   φ(x) = exp(ωx − ‖x‖² / 2) / √m   for each of the m rows of ω
//! ```
//!
//! This is lemma 1, with q and k divided by the fourth root of a head's width. All features are
//! positive, so no denominator is near zero by chance. The rows of ω come in blocks of as many
//! vectors as a head is wide. The vectors in a block are orthogonal to each other, but each has the
//! length of an independent normally distributed vector (section 2.4). This makes the error smaller
//! (theorem 2).

use crate::Pass;
use crate::config::AttentionConfig;
use crate::layers::attention::Site;
use candle_core::{Device, Result, Tensor};
use std::sync::OnceLock;
use taper_ops::rng::{Counter, mix, name_key};

/// The vectors ω of a layer, which all heads share: M vectors, one for each feature, as wide as a
/// head (Dh).
#[derive(Debug)]
pub(super) struct RandomFeatures {
    head: usize,
    count: usize,
    key: u64,
    redraw_every: usize,
    /// Vectors outside of training, `(M, Dh)`, drawn on first use.
    fixed: OnceLock<Tensor>,
}

impl RandomFeatures {
    pub(super) fn new(site: &Site<'_>) -> Self {
        let AttentionConfig { features, redraw_every, seed, .. } =
            *site.config.attention(site.causal);
        let head = site.config.attention_shape().head_width;
        Self::with_key(head, features, mix(seed, &[name_key(site.name)]), redraw_every)
    }

    fn with_key(head: usize, count: usize, key: u64, redraw_every: usize) -> Self {
        Self { head, count, key, redraw_every, fixed: OnceLock::new() }
    }

    /// Makes random features whose vectors are drawn with the random key `key`, and never redrawn.
    #[cfg(test)]
    pub(super) fn drawn(head: usize, count: usize, key: u64) -> Self {
        Self::with_key(head, count, key, 0)
    }

    /// Makes features with these `vectors (M, Dh)`, which are never redrawn.
    #[cfg(test)]
    pub(super) fn given(vectors: &Tensor) -> Self {
        let (count, head) = vectors.dims2().unwrap();
        Self { fixed: OnceLock::from(vectors.clone()), ..Self::with_key(head, count, 0, 0) }
    }

    /// Number of features of a head.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Returns the vectors ω for `pass`, `(M, Dh)`. In training they are redrawn after every
    /// `redraw_every` updates, or never if this number is 0.
    pub(super) fn of_pass(&self, pass: &Pass) -> Result<Tensor> {
        match pass.updates() {
            Some(updates) if self.redraw_every > 0 => {
                let draw = updates / self.redraw_every as u64;
                orthogonal(self.count, self.head, mix(self.key, &[draw]))
            }
            _ => self.fixed(),
        }
    }

    /// Returns the vectors ω outside of training, `(M, Dh)`.
    pub(super) fn fixed(&self) -> Result<Tensor> {
        if let Some(vectors) = self.fixed.get() {
            return Ok(vectors.clone());
        }
        let vectors = orthogonal(self.count, self.head, self.key)?;
        Ok(self.fixed.get_or_init(|| vectors).clone())
    }
}

/// Draws normally distributed vectors, `(count, width)` in f64. Within each block of `width`
/// vectors, they are orthogonal.
///
/// The directions come from normal vectors by Gram-Schmidt orthogonalisation, so each is uniformly
/// distributed over all directions. The lengths are those of other normal vectors.
fn orthogonal(count: usize, width: usize, key: u64) -> Result<Tensor> {
    let (directions, lengths) = (Counter::new(mix(key, &[0])), Counter::new(mix(key, &[1])));
    let normal = |counter: &Counter, row: usize| -> Vec<f64> {
        (0..width).map(|column| counter.normal_at((row * width + column) as u64)).collect()
    };
    let inner = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let mut rows: Vec<Vec<f64>> = Vec::with_capacity(count);
    for index in 0..count {
        let mut row = normal(&directions, index);
        for other in &rows[index - index % width..] {
            let along = inner(&row, other);
            row.iter_mut().zip(other).for_each(|(x, other)| *x -= along * other);
        }
        let length = inner(&row, &row).sqrt();
        row.iter_mut().for_each(|x| *x /= length);
        rows.push(row);
    }
    let scaled = rows.into_iter().enumerate().flat_map(|(index, row)| {
        let other = normal(&lengths, index);
        let length = inner(&other, &other).sqrt();
        row.into_iter().map(move |x| x * length)
    });
    Tensor::from_vec(scaled.collect::<Vec<f64>>(), (count, width), &Device::Cpu)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(features: &RandomFeatures) -> Vec<Vec<f64>> {
        features.fixed().unwrap().to_vec2().unwrap()
    }

    fn inner(a: &[f64], b: &[f64]) -> f64 {
        a.iter().zip(b).map(|(a, b)| a * b).sum()
    }

    #[test]
    fn the_vectors_of_a_block_are_orthogonal_and_as_long_as_normal_ones() {
        let (width, count) = (6, 15);
        let mut squares = 0.0;
        for seed in 0..200 {
            let rows = rows(&RandomFeatures::with_key(width, count, seed, 0));
            for (i, row) in rows.iter().enumerate() {
                squares += inner(row, row);
                for other in &rows[i - i % width..i] {
                    assert!(inner(row, other).abs() < 1e-12);
                }
            }
        }
        // The squared length of a normal vector is χ²-distributed, with `width` degrees of freedom.
        let mean = squares / (200 * count) as f64;
        assert!((mean - width as f64).abs() < 0.2, "{mean}");
    }

    /// Compares the error of the estimate with the formulas of the paper, for two vectors x and y
    /// of the width d. If the m features are independent, the mean squared error is that of lemma
    /// 2, `exp(‖x + y‖²) SM² (1 − exp(−‖x + y‖²)) / m`, with `SM = exp(x·y)`. A single feature is
    /// always independent. If the features are orthogonal, the error is smaller by at least the
    /// bound of theorem 2, `2 (m − 1) / (m (d + 2)) · (SM − exp(−(‖x‖² + ‖y‖²) / 2))²`.
    #[test]
    fn the_error_of_the_estimate_is_that_of_the_paper() {
        let (width, draws) = (4, 40_000);
        let (x, y) = ([0.3, -0.2, 0.5, 0.1], [0.4, 0.3, 0.2, -0.3]);
        let sum: Vec<f64> = x.iter().zip(y).map(|(x, y)| x + y).collect();
        let (squares, exact) = (inner(&sum, &sum), inner(&x, &y).exp());
        let of_one = squares.exp() * exact.powi(2) * (1.0 - (-squares).exp());
        let gain = (exact - (-(inner(&x, &x) + inner(&y, &y)) / 2.0).exp()).powi(2);
        for count in [1, 4] {
            let (mut error, mut mean) = (0.0, 0.0);
            for seed in 0..draws {
                let rows = rows(&RandomFeatures::with_key(width, count, seed, 0));
                let feature = |row: &[f64], x: &[f64]| (inner(row, x) - inner(x, x) / 2.0).exp();
                let products = rows.iter().map(|row| feature(row, &x) * feature(row, &y));
                let estimate = products.sum::<f64>() / count as f64;
                mean += estimate / draws as f64;
                error += (estimate - exact).powi(2) / draws as f64;
            }
            let m = count as f64;
            let least_gain = 2.0 * (m - 1.0) / (m * (width as f64 + 2.0)) * gain;
            let bound = of_one / m - least_gain;
            assert!((mean / exact - 1.0).abs() < 0.02, "{count}: mean {mean}, exactly {exact}");
            if count == 1 {
                assert!((error / bound - 1.0).abs() < 0.1, "{error}, by the formula {bound}");
            } else {
                assert!(
                    least_gain > 0.05 * bound,
                    "the bound is nearly as large as for independent features"
                );
                assert!(error < 1.05 * bound, "{error}, the bound is {bound}");
                assert!(error > 0.3 * bound, "{error}, the bound is {bound}");
            }
        }
    }

    #[test]
    fn features_are_drawn_anew_in_training_alone() {
        let vectors = |every, pass: &Pass| {
            let features = RandomFeatures::with_key(4, 6, 3, every);
            features.of_pass(pass).unwrap().to_vec2::<f64>().unwrap()
        };
        let fixed = vectors(0, &Pass::evaluate());
        assert_eq!(vectors(0, &Pass::train(1, 70, 0)), fixed);
        assert_eq!(vectors(10, &Pass::evaluate()), fixed);
        let at = |step| vectors(10, &Pass::train(1, step, 0));
        assert_eq!(at(70), at(79));
        assert_ne!(at(70), at(80));
    }
}
