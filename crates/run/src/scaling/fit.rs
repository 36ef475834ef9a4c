//! Fit of a scaling law to points: the best of the minima that several searches find.

use anyhow::{Result, bail, ensure};
use rayon::prelude::*;

use super::minimize::{Minimum, minimize};
use super::objective::{LogPoint, Objective, law_at};
use super::{Law, Observation, Scale};

/// Values of ln E from which searches start (Hoffmann et al. 2022, appendix D.3).
const IRREDUCIBLE: [f64; 5] = [-1.0, -0.5, 0.0, 0.5, 1.0];
/// Values of the logarithm of each factor from which searches start.
const FACTORS: [f64; 6] = [0.0, 5.0, 10.0, 15.0, 20.0, 25.0];
/// Values of each exponent from which searches start.
const EXPONENTS: [f64; 5] = [0.0, 0.5, 1.0, 1.5, 2.0];
/// Number of starting points from which a search is made: those with the smallest values of the
/// objective.
const FOLLOWED: usize = 24;

/// Fitted law.
#[derive(Debug, Clone)]
pub struct Fit<const K: usize> {
    /// Law with the fitted coefficients.
    pub law: Law<K>,
    /// Value of the objective at the minimum: with [`Scale::Fitted`], the negative log-likelihood,
    /// up to a constant; with [`Scale::Fixed`], the sum of Huber losses.
    pub objective: f64,
    pub(super) scale: Scale,
    pub(super) minimum: Minimum,
}

/// Fits a law to `points`.
///
/// # Errors
/// If there are too few points, an input or a loss is not a positive number, or no search finds a
/// finite minimum.
pub fn fit<const K: usize>(points: &[Observation<K>], scale: Scale) -> Result<Fit<K>> {
    let points = logarithms(points)?;
    let objective = Objective { points: &points, scale };
    let mut starts: Vec<(f64, Vec<f64>)> = grid(K)
        .into_par_iter()
        .map(|start| {
            let start = objective.start(&start);
            (objective.evaluate(&start, &mut vec![0.0; start.len()]), start)
        })
        .collect();
    starts.sort_by(|left, right| left.0.total_cmp(&right.0));
    starts.truncate(FOLLOWED);
    let minima: Vec<Minimum> =
        starts.into_par_iter().map(|(_, start)| follow(&objective, start)).collect();
    match minima.into_iter().min_by(|left, right| left.value.total_cmp(&right.value)) {
        Some(minimum) if minimum.value.is_finite() => {
            Ok(Fit { law: law_at(&minimum.at), objective: minimum.value, scale, minimum })
        }
        _ => bail!("no scaling law describes these points"),
    }
}

/// Minimum that a search from `start` finds.
pub(super) fn follow<const K: usize>(objective: &Objective<'_, K>, start: Vec<f64>) -> Minimum {
    minimize(|at, gradient| objective.evaluate(at, gradient), start)
}

/// Logarithms of the points.
///
/// # Errors
/// See [`fit`].
pub(super) fn logarithms<const K: usize>(points: &[Observation<K>]) -> Result<Vec<LogPoint<K>>> {
    let unknowns = 2 * K + 1;
    ensure!(
        points.len() > unknowns,
        "a scaling law of {K} inputs has {unknowns} unknowns; {} points are too few for it, at \
         least {} are needed",
        points.len(),
        unknowns + 1
    );
    for (number, point) in points.iter().enumerate() {
        let usable = |value: f64| value.is_finite() && value > 0.0;
        ensure!(
            point.inputs.iter().all(|&input| usable(input)) && usable(point.loss),
            "point {}: inputs {:?} and loss {} must be positive numbers",
            number + 1,
            point.inputs,
            point.loss
        );
    }
    Ok(points.iter().map(LogPoint::from).collect())
}

/// All combinations of the starting values for `terms` terms, as `[e, a₁, α₁, …]` with e = ln E and
/// aₖ = ln Aₖ.
fn grid(terms: usize) -> Vec<Vec<f64>> {
    let mut starts: Vec<Vec<f64>> = IRREDUCIBLE.iter().map(|&e| vec![e]).collect();
    for values in std::iter::repeat_n([&FACTORS[..], &EXPONENTS[..]], terms).flatten() {
        starts = starts
            .iter()
            .flat_map(|start| {
                values.iter().map(move |&value| {
                    let mut longer = start.clone();
                    longer.push(value);
                    longer
                })
            })
            .collect();
    }
    starts
}
