//! Mixtures of experts in place of feed-forward layers.

use super::bounds;
use crate::ModelError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A mixture of experts in place of the feed-forward layers (Fedus et al. 2022, "Switch
/// Transformers"; Lepikhin et al. 2021, "GShard").
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ExpertsConfig {
    /// Number of experts of a layer, each a feed-forward layer of width `model.d_ff`; 0: plain
    /// feed-forward layers, without experts.
    #[schemars(extend("x-idle" = ["not-transformer"]))]
    pub count: usize,
    /// Number of experts of a token: 1 in Switch Transformers, 2 in GShard.
    #[schemars(range(min = 1))]
    #[schemars(extend("x-idle" = ["no-experts"]))]
    pub per_token: usize,
    /// Distance between layers with experts: layers whose number, counted from 1, is a multiple of
    /// `every` have them. With 1, all layers have experts.
    #[schemars(range(min = 1))]
    #[schemars(extend("x-idle" = ["no-experts"]))]
    pub every: usize,
    /// Capacity in training, as a factor of at least 1. If all experts of a layer got equally many
    /// tokens of a micro-batch, an expert would get its even share. It takes at most this factor
    /// times that share; further tokens are dropped.
    #[schemars(range(min = 1.0))]
    #[schemars(extend("x-weights" = ["no-part"]), extend("x-idle" = ["no-experts"]))]
    pub capacity: f64,
    /// Weight of the loss for uneven loads. With a weight of 1, the loss adds one nat per token and
    /// layer if loads are even, and up to `count` nats if they are uneven.
    #[schemars(range(min = 0.0))]
    #[schemars(extend("x-weights" = ["no-part"]), extend("x-idle" = ["no-experts"]))]
    pub balance_loss: f64,
    /// Weight of the loss for large scores of the router: the mean square of the logarithm of the
    /// sum of their exponentials (Zoph et al. 2022, "ST-MoE").
    #[schemars(range(min = 0.0))]
    #[schemars(extend("x-weights" = ["no-part"]), extend("x-idle" = ["no-experts"]))]
    pub z_loss: f64,
    /// Noise on the router's inputs in training: each is multiplied by a random number from 1 -
    /// `jitter` to 1 + `jitter`.
    #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1.0))]
    #[schemars(extend("x-weights" = ["no-part"]), extend("x-idle" = ["no-experts"]))]
    pub jitter: f64,
}

impl Default for ExpertsConfig {
    fn default() -> Self {
        Self {
            count: 0,
            per_token: 1,
            every: 1,
            capacity: 1.25,
            balance_loss: 0.01,
            z_loss: 0.001,
            jitter: 0.01,
        }
    }
}

impl ExpertsConfig {
    /// True if the layer with the index `layer`, from 0, in a stack has experts.
    #[must_use]
    pub fn are_in(&self, layer: usize) -> bool {
        self.count > 0 && (layer + 1).is_multiple_of(self.every)
    }

    /// Largest number of tokens that one expert takes in training, out of `tokens` tokens.
    #[must_use]
    pub fn capacity_of(&self, tokens: usize) -> usize {
        let even = (self.per_token * tokens) as f64 / self.count.max(1) as f64;
        (self.capacity * even).ceil() as usize
    }

    pub(super) fn validate(&self) -> Result<(), ModelError> {
        let refuse = |message: String| Err(ModelError::Config(message));
        bounds::size("model.experts.count", self.count, 0..=*bounds::COUNTS.end())?;
        bounds::size("model.experts.per_token", self.per_token, bounds::COUNTS)?;
        bounds::size("model.experts.every", self.every, bounds::COUNTS)?;
        if self.count > 0 && self.per_token > self.count {
            return refuse(format!(
                "model.experts.per_token = {} is more than model.experts.count = {}",
                self.per_token, self.count
            ));
        }
        // With a smaller capacity, experts would drop tokens even if all loads were equal.
        bounds::number("model.experts.capacity", self.capacity, 1.0..=1e6)?;
        bounds::number("model.experts.balance_loss", self.balance_loss, bounds::FACTORS)?;
        bounds::number("model.experts.z_loss", self.z_loss, bounds::FACTORS)?;
        if !(0.0..1.0).contains(&self.jitter) {
            return refuse(format!(
                "model.experts.jitter = {:?}: it must be at least 0 and below 1",
                self.jitter
            ));
        }
        Ok(())
    }
}
