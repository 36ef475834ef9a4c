//! Confidence intervals of the coefficients of a fitted law, by resampling.

use anyhow::{Result, ensure};
use rayon::prelude::*;
use taper_ops::rng::{Counter, mix};

use super::fit::{follow, logarithms};
use super::objective::{Objective, law_at};
use super::{Fit, Law, Observation};

/// Confidence interval of a coefficient.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// Confidence intervals of a law's coefficients.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Intervals<const K: usize> {
    /// Interval of the irreducible loss E.
    pub irreducible: Interval,
    /// Intervals of the factors, A and B.
    pub factors: [Interval; K],
    /// Intervals of the exponents, α and β.
    pub exponents: [Interval; K],
}

/// Percentile confidence intervals of the coefficients of `fit`, which was fitted to `points`
/// (Efron 1979). The law is fitted again `resamples` times, each time to points that are drawn from
/// `points` with replacement; each of these fits starts from the coefficients of `fit`. With a
/// `confidence` of 0.95, an interval excludes the lowest 2.5 % and the highest 2.5 % of a
/// coefficient's values.
///
/// # Errors
/// If `confidence` is not between 0 and 1, or `resamples` is 0. For other errors, see
/// [`super::fit()`].
pub fn bootstrap<const K: usize>(
    points: &[Observation<K>],
    fit: &Fit<K>,
    resamples: usize,
    confidence: f64,
    seed: u64,
) -> Result<Intervals<K>> {
    ensure!(resamples > 0, "an interval needs at least one resample");
    ensure!(
        confidence > 0.0 && confidence < 1.0,
        "a confidence of {confidence} is not between 0 and 1"
    );
    let points = logarithms(points)?;
    let laws: Vec<Law<K>> = (0..resamples as u64)
        .into_par_iter()
        .map(|resample| {
            let counter = Counter::new(mix(seed, &[resample]));
            let draw = |i: usize| (counter.f64_at(i as u64) * points.len() as f64) as usize;
            let drawn: Vec<_> = (0..points.len()).map(|i| points[draw(i)]).collect();
            let objective = Objective { points: &drawn, scale: fit.scale };
            law_at(&follow(&objective, fit.minimum.at.clone()).at)
        })
        .collect();
    let interval = |value: &dyn Fn(&Law<K>) -> f64| {
        let mut values: Vec<f64> = laws.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        let tail = (1.0 - confidence) / 2.0;
        let at = |share: f64| values[(share * (values.len() - 1) as f64).round() as usize];
        Interval { low: at(tail), high: at(1.0 - tail) }
    };
    Ok(Intervals {
        irreducible: interval(&|law| law.irreducible),
        factors: std::array::from_fn(|k| interval(&move |law| law.terms[k].factor)),
        exponents: std::array::from_fn(|k| interval(&move |law| law.terms[k].exponent)),
    })
}
