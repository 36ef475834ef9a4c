//! Scaling laws: the loss of a trained model as a function of its size and of the amount of
//! training data.
//!
//! `L(x₁, …) = E + Σ Aₖ / xₖ^αₖ`, where the inputs xₖ are the number of parameters N, the number of
//! training tokens D, or both (Hoffmann et al. 2022, "Training Compute-Optimal Large Language
//! Models", section 3.3, "approach 3").
//!
//! **Decision.** By default ([`Scale::Fitted`]), the residuals of ln L are divided by a scale that
//! is fitted together with the law, as in the replication of Besiroglu et al. 2024 ("Chinchilla
//! Scaling: A replication attempt"). The alternative ([`Scale::Fixed`]) is the Huber loss of the
//! residuals themselves, as in Hoffmann et al. On the points of the replication, both choices give
//! different laws: A is 482.0 with the fitted scale, and 477.8 without a scale.
//!
//! ```
//! use taper_run::scaling::{Law, Observation, Scale, Term, fit};
//! # fn main() -> anyhow::Result<()> {
//! let truth = Law { irreducible: 1.7, terms: [Term { factor: 400.0, exponent: 0.34 }] };
//! let points: Vec<Observation<1>> = (10..30)
//!     .map(|i| 10_f64.powf(0.3 * f64::from(i)))
//!     .map(|parameters| Observation { inputs: [parameters], loss: truth.loss([parameters]) })
//!     .collect();
//! let fit = fit(&points, Scale::Fixed)?;
//! assert!((fit.law.terms[0].exponent - 0.34).abs() < 1e-3);
//! # Ok(())
//! # }
//! ```

mod bootstrap;
mod fit;
mod minimize;
mod objective;
mod power;

pub use bootstrap::{Interval, Intervals, bootstrap};
pub use fit::{Fit, fit};
pub use objective::Scale;
pub use power::PowerLaw;

/// Observed loss of a trained model, with the inputs of the law for this model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Observation<const K: usize> {
    /// Inputs, such as the numbers of parameters and training tokens.
    pub inputs: [f64; K],
    /// Loss on text on which the model was not trained, in nats per token.
    pub loss: f64,
}

/// Term of a law, `factor / x^exponent`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Term {
    /// Factor Aₖ (for the second input, the literature writes B).
    pub factor: f64,
    /// Exponent αₖ (for the second input, the literature writes β).
    pub exponent: f64,
}

/// Law `E + Σ Aₖ / xₖ^αₖ`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Law<const K: usize> {
    /// E: the loss that remains however large the model and the data are.
    pub irreducible: f64,
    /// One term for each input.
    pub terms: [Term; K],
}

impl<const K: usize> Law<K> {
    /// Loss that the law predicts for these inputs.
    #[must_use]
    pub fn loss(&self, inputs: [f64; K]) -> f64 {
        let reducible = self.terms.iter().zip(inputs);
        self.irreducible
            + reducible.map(|(term, x)| term.factor / x.powf(term.exponent)).sum::<f64>()
    }
}

/// Size of the model and amount of data with the smallest loss for a given number of operations.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Optimum {
    /// Number of parameters N.
    pub parameters: f64,
    /// Number of training tokens D.
    pub tokens: f64,
    /// Loss that the law predicts for this size and amount of data.
    pub loss: f64,
}

impl Law<2> {
    /// Numbers N and D with the smallest loss among all N and D for which C = 6ND, where C =
    /// `flops` is the number of floating-point operations of the training (Hoffmann et al. 2022,
    /// equation 4): `N = G (C/6)^(β/(α+β))` with `G = (αA/βB)^(1/(α+β))`, and `D = C / 6N`.
    #[must_use]
    pub fn compute_optimal(&self, flops: f64) -> Optimum {
        let [size, data] = self.terms;
        let sum = size.exponent + data.exponent;
        let ratio = (size.exponent * size.factor) / (data.exponent * data.factor);
        let parameters = ratio.powf(1.0 / sum) * (flops / 6.0).powf(data.exponent / sum);
        let tokens = flops / 6.0 / parameters;
        Optimum { parameters, tokens, loss: self.loss([parameters, tokens]) }
    }
}
