//! Outcome of an update, and its measurements.

use std::fmt;

use serde::{Deserialize, Serialize};
use taper_model::{LossOutput, Routing};

use super::noise::GradientNoise;
use crate::exact;

/// Measurements of one update.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct UpdateMetrics {
    /// Sum of the label-smoothed cross entropy over the target tokens, in nats.
    #[serde(with = "exact::number")]
    pub smoothed_sum: f64,
    /// Sum of the negative log-likelihood of the true tokens, in nats.
    #[serde(with = "exact::number")]
    pub nll_sum: f64,
    /// Sum of the divergences between the two predictions of a token, with R-Drop, in nats;
    /// otherwise 0.
    #[serde(with = "exact::number")]
    pub divergence_sum: f64,
    /// Sum of the minimised value: the smoothed cross entropy, plus α times the divergence with
    /// R-Drop, plus the loss of loads with experts.
    #[serde(with = "exact::number")]
    pub objective_sum: f64,
    /// Target tokens whose true class scored highest.
    pub correct: u64,
    /// Target tokens.
    pub tokens: u64,
    /// Routing of tokens to experts.
    pub routing: Routing,
    /// Euclidean norm of the gradient, before clipping; for a micro-batch, the norm of its share if
    /// there are several.
    #[serde(with = "exact::number")]
    pub gradient_norm: f64,
    /// Noise of the gradient, from the differences between micro-batches.
    pub noise: GradientNoise,
}

impl UpdateMetrics {
    /// Measurements of one micro-batch.
    pub(crate) fn from_loss(output: &LossOutput) -> Self {
        Self {
            smoothed_sum: output.smoothed_sum,
            nll_sum: output.nll_sum,
            divergence_sum: output.divergence_sum,
            objective_sum: output.objective_sum,
            correct: output.correct as u64,
            tokens: output.tokens as u64,
            routing: output.routing,
            gradient_norm: 0.0,
            noise: GradientNoise::default(),
        }
    }

    /// Negative log-likelihood per answer, in nats.
    pub(crate) fn nll(&self) -> f64 {
        self.nll_sum / self.tokens as f64
    }

    /// Sum over micro-batches, in their order.
    ///
    /// # Errors
    /// If a loss is not finite. The error is that of the first such loss.
    pub(crate) fn total(micro_batches: &[Self]) -> Result<Self, SkipReason> {
        let mut total = Self::default();
        for one in micro_batches {
            if !one.objective_sum.is_finite() {
                return Err(SkipReason::Loss(one.objective_sum));
            }
            total.smoothed_sum += one.smoothed_sum;
            total.nll_sum += one.nll_sum;
            total.divergence_sum += one.divergence_sum;
            total.objective_sum += one.objective_sum;
            total.correct += one.correct;
            total.tokens += one.tokens;
            total.routing += one.routing;
        }
        Ok(total)
    }

    /// Decision whether to make the update: not if the gradient is not finite, nor if the loss is
    /// above `loss_limit` nats per token.
    pub(crate) fn judged(self, loss_limit: f64) -> Outcome {
        if !self.gradient_norm.is_finite() {
            return Outcome::Skipped(SkipReason::Gradient(self.gradient_norm));
        }
        let loss = self.loss();
        if loss > loss_limit {
            return Outcome::Skipped(SkipReason::Spike { loss, limit: loss_limit });
        }
        Outcome::Made(self)
    }

    /// Minimised value, in nats a target token.
    #[must_use]
    pub fn loss(&self) -> f64 {
        self.objective_sum / self.tokens as f64
    }
}

/// Outcome of an update.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// The weights changed.
    Made(UpdateMetrics),
    /// The weights did not change, because of this error.
    Skipped(SkipReason),
    /// The weights did not change: a stop was requested between two micro-batches.
    Stopped,
}

/// Reason why an update is not made.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SkipReason {
    /// Loss that is not finite.
    Loss(f64),
    /// Norm of the gradient that is not finite.
    Gradient(f64),
    /// Loss per token, in nats, above the limit.
    Spike {
        /// Value of the loss.
        loss: f64,
        /// Largest value allowed.
        limit: f64,
    },
}

impl fmt::Display for SkipReason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Loss(loss) => write!(formatter, "the loss is {loss}"),
            Self::Gradient(norm) => write!(formatter, "the gradient norm is {norm}"),
            Self::Spike { loss, limit } => {
                write!(
                    formatter,
                    "the loss is {loss:.4}, above the limit of {limit:.4} that \
                     training.spike_factor sets"
                )
            }
        }
    }
}
