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
    /// Sum of the negative log-likelihoods of the true target tokens, in nats.
    #[serde(with = "exact::number")]
    pub nll_sum: f64,
    /// Sum over the target tokens of the divergence between R-Drop's two predictions, in nats; 0
    /// without R-Drop.
    #[serde(with = "exact::number")]
    pub divergence_sum: f64,
    /// Sum over the target tokens of the value that training minimises, in nats. It is the
    /// label-smoothed cross entropy. With R-Drop, α times the divergence is added. The loss that
    /// balances the load of experts, and the loss of guided alignment, are added if there are any.
    #[serde(with = "exact::number")]
    pub objective_sum: f64,
    /// Number of target tokens for which the true class had the highest logit.
    pub correct: u64,
    /// Number of target tokens.
    pub tokens: u64,
    /// Routing of tokens to experts.
    pub routing: Routing,
    /// Euclidean norm of the update's gradient, before clipping. If these are measurements of one
    /// micro-batch of several, the norm of this micro-batch's share of the gradient.
    #[serde(with = "exact::number")]
    pub gradient_norm: f64,
    /// Noise of the gradient, estimated from the differences between micro-batches.
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

    /// Negative log-likelihood per target token, in nats.
    pub(crate) fn nll(&self) -> f64 {
        self.nll_sum / self.tokens as f64
    }

    /// Returns the sums of the measurements of micro-batches, added in the order of the
    /// micro-batches. Gradient norm and noise stay 0.
    ///
    /// # Errors
    /// If a loss is not finite. The error contains the first such loss.
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

    /// Decides whether to make the update. It is skipped if the gradient is not finite, or if the
    /// loss is above `loss_limit` nats per token.
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

    /// Value that training minimises, per target token, in nats.
    #[must_use]
    pub fn loss(&self) -> f64 {
        self.objective_sum / self.tokens as f64
    }
}

/// Outcome of an update.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// The weights were updated.
    Made(UpdateMetrics),
    /// The update was skipped for this reason, and the weights are unchanged.
    Skipped(SkipReason),
    /// The update was not made, because the stop flag was set, and the weights are unchanged.
    Stopped,
}

/// Reason why an update is not made.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SkipReason {
    /// The loss has this value, which is not finite.
    Loss(f64),
    /// The norm of the gradient has this value, which is not finite.
    Gradient(f64),
    /// The loss per token, in nats, is above the limit.
    Spike {
        /// Loss per token, in nats.
        loss: f64,
        /// Limit of the loss, in nats per token.
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
