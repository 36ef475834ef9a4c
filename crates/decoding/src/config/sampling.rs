//! Settings of random sampling.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Random sampling of translations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SamplingConfig {
    /// Divisor of logits before sampling: below 1 favours likely tokens, above 1 makes
    /// probabilities more equal. 0 searches instead of sampling.
    #[schemars(range(min = 0.0))]
    #[schemars(extend("x-names" = "temp sampling_temperature softmax_temperature"))]
    pub temperature: f64,
    /// Number of the likeliest tokens to sample from; 0 for all.
    #[schemars(extend("x-names" = "topk sampling_topk"), extend("x-idle" = ["not-drawn"]))]
    pub top_k: usize,
    /// Total probability of the tokens to sample from: the smallest set of likeliest tokens with at
    /// least this probability (Holtzman et al. 2020, "The Curious Case of Neural Text
    /// Degeneration"); 1 for all.
    #[schemars(range(max = 1.0), extend("exclusiveMinimum" = 0.0))]
    #[schemars(extend("x-names" = "topp nucleus sampling_topp"), extend("x-idle" = ["not-drawn"]))]
    pub top_p: f64,
    /// Smallest probability of a token to sample, among the tokens that `top_k` and `top_p` leave:
    /// less likely ones are never sampled (Hewitt et al. 2022, "Truncation Sampling as Language
    /// Model Desmoothing"; 0.02 for candidates of reranking in Freitag et al. 2023, "Epsilon
    /// Sampling Rocks"); 0 for all.
    #[serde(skip_serializing_if = "super::is_zero")]
    #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1.0))]
    #[schemars(
        extend("x-names" = "epsilon_cutoff min_prob"),
        extend("x-idle" = ["not-drawn"])
    )]
    pub epsilon: f64,
    /// Seed of sampling. Samples depend on the seed, the sentence's number, the index of the sample
    /// and the position.
    #[schemars(extend("x-idle" = ["not-drawn"]))]
    pub seed: u64,
}

impl Default for SamplingConfig {
    fn default() -> Self {
        Self { temperature: 0.0, top_k: 0, top_p: 1.0, epsilon: 0.0, seed: 1 }
    }
}

impl SamplingConfig {
    /// True if translations are sampled instead of searched for.
    pub fn is_active(&self) -> bool {
        self.temperature > 0.0
    }
}
