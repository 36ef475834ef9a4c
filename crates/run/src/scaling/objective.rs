//! Function that the fit of a law minimises, and its gradient.
//!
//! The law is fitted in logarithms: `ln L = logsumexp(e, a₁ - α₁ ln x₁, …)`, with e = ln E and
//! aₖ = ln Aₖ, which keeps E and all Aₖ positive (Hoffmann et al. 2022, equation 3).

use super::{Law, Observation, Term};

/// Largest residual for which the Huber loss is quadratic; for larger residuals, it is linear
/// (Hoffmann et al. 2022, section 3.3).
pub(super) const DELTA: f64 = 1e-3;
/// Lower bound of the fitted scale; without it, the scale would be 0 for points exactly on a law.
const SMALLEST_SCALE: f64 = 1e-9;

/// Choice of the scale by which residuals of the logarithm of the loss are divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scale {
    /// A scale σ that is fitted together with the law: maximum likelihood with the density
    /// `exp(-huber(r/σ)) / σ` of residuals r (Besiroglu et al. 2024).
    #[default]
    Fitted,
    /// No scale: the sum of Huber losses is minimised (Hoffmann et al. 2022).
    Fixed,
}

/// Logarithms of the inputs and of the loss of a point.
#[derive(Debug, Clone, Copy)]
pub(super) struct LogPoint<const K: usize> {
    inputs: [f64; K],
    loss: f64,
}

impl<const K: usize> From<&Observation<K>> for LogPoint<K> {
    fn from(point: &Observation<K>) -> Self {
        Self { inputs: point.inputs.map(f64::ln), loss: point.loss.ln() }
    }
}

/// Function of `[e, a₁, α₁, …, s]` to minimise, where s is `ln(σ - SMALLEST_SCALE)` for the scale
/// σ. With [`Scale::Fixed`], there is no s.
pub(super) struct Objective<'a, const K: usize> {
    pub(super) points: &'a [LogPoint<K>],
    pub(super) scale: Scale,
}

impl<const K: usize> Objective<'_, K> {
    /// Returns the value at `at`, and writes the gradient there into `gradient`.
    pub(super) fn evaluate(&self, at: &[f64], gradient: &mut [f64]) -> f64 {
        let sigma = self.sigma(at);
        gradient.fill(0.0);
        let mut value = 0.0;
        for point in self.points {
            let prediction = predict(at, &point.inputs);
            let residual = (prediction.log_loss - point.loss) / sigma;
            let (huber, slope) = huber(residual);
            value += huber;
            let by_prediction = slope / sigma;
            gradient[0] += by_prediction * prediction.irreducible;
            for (k, (x, share)) in point.inputs.iter().zip(prediction.terms).enumerate() {
                gradient[1 + 2 * k] += by_prediction * share;
                gradient[2 + 2 * k] -= by_prediction * share * x;
            }
            if self.scale == Scale::Fitted {
                // The variable is `ln(σ - SMALLEST_SCALE)`; the derivative of σ with respect to it
                // is `σ - SMALLEST_SCALE`.
                let by_log = (sigma - SMALLEST_SCALE) / sigma;
                value += sigma.ln();
                gradient[2 * K + 1] += (1.0 - slope * residual) * by_log;
            }
        }
        value
    }

    /// Returns the coefficients `law` with a starting value for the scale, if it is fitted. For
    /// large residuals, for which the Huber loss is linear, the likeliest scale is [`DELTA`] times
    /// the mean absolute residual.
    pub(super) fn start(&self, law: &[f64]) -> Vec<f64> {
        let mut at = law.to_vec();
        if self.scale == Scale::Fitted {
            let sizes =
                self.points.iter().map(|p| (predict(law, &p.inputs).log_loss - p.loss).abs());
            let mean = sizes.sum::<f64>() / self.points.len() as f64;
            at.push((DELTA * mean).max(SMALLEST_SCALE).ln());
        }
        at
    }

    fn sigma(&self, at: &[f64]) -> f64 {
        match self.scale {
            Scale::Fitted => SMALLEST_SCALE + at[2 * K + 1].exp(),
            Scale::Fixed => 1.0,
        }
    }
}

/// Logarithm of the loss that the law predicts for a point, and the shares of E and of each term in
/// the loss. These shares are also the derivatives of the logarithm with respect to e and each aₖ.
struct Prediction<const K: usize> {
    log_loss: f64,
    irreducible: f64,
    terms: [f64; K],
}

fn predict<const K: usize>(at: &[f64], inputs: &[f64; K]) -> Prediction<K> {
    let logs: [f64; K] = std::array::from_fn(|k| at[1 + 2 * k] - at[2 + 2 * k] * inputs[k]);
    let largest = logs.iter().copied().fold(at[0], f64::max);
    let (first, terms) = ((at[0] - largest).exp(), logs.map(|log| (log - largest).exp()));
    let total = first + terms.iter().sum::<f64>();
    Prediction {
        log_loss: largest + total.ln(),
        irreducible: first / total,
        terms: terms.map(|term| term / total),
    }
}

/// Huber loss of a residual, and its derivative (Huber 1964).
fn huber(residual: f64) -> (f64, f64) {
    if residual.abs() <= DELTA {
        (0.5 * residual * residual, residual)
    } else {
        (DELTA * (residual.abs() - 0.5 * DELTA), DELTA.copysign(residual))
    }
}

/// Law with the coefficients `[e, a₁, α₁, …]`.
pub(super) fn law_at<const K: usize>(at: &[f64]) -> Law<K> {
    Law {
        irreducible: at[0].exp(),
        terms: std::array::from_fn(|k| Term {
            factor: at[1 + 2 * k].exp(),
            exponent: at[2 + 2 * k],
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gradient_is_that_of_the_value() {
        let points: Vec<LogPoint<2>> = (0..9)
            .map(f64::from)
            .map(|i| LogPoint { inputs: [14.0 + i, 17.0 + (2.0 * i).sin()], loss: 1.2 - 0.05 * i })
            .collect();
        for (scale, at) in [
            (Scale::Fixed, vec![0.4, 5.0, 0.3, 6.0, 0.4]),
            (Scale::Fitted, vec![0.4, 5.0, 0.3, 6.0, 0.4, -3.0]),
        ] {
            let objective = Objective { points: &points, scale };
            let mut gradient = vec![0.0; at.len()];
            objective.evaluate(&at, &mut gradient);
            for (i, expected) in gradient.iter().enumerate() {
                let value = |step: f64| {
                    let mut moved = at.clone();
                    moved[i] += step;
                    objective.evaluate(&moved, &mut vec![0.0; at.len()])
                };
                let difference = (value(1e-6) - value(-1e-6)) / 2e-6;
                assert!(
                    (expected - difference).abs() < 1e-6 * (1.0 + expected.abs()),
                    "{scale:?} {i}: {expected}, finite difference {difference}"
                );
            }
        }
    }
}
