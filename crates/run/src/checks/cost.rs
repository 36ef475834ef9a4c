//! Cost of a model: parameters, arithmetic per token, memory.

use serde::Serialize;

use crate::numbers::{bytes, grouped, scaled};

/// Counts of a model.
#[derive(Debug, Clone, Serialize)]
pub struct Cost {
    /// Number of trained scalars.
    pub parameters: u64,
    /// Number of frozen scalars, which adapters change; 0 without adapters.
    #[serde(skip_serializing_if = "is_zero")]
    pub frozen_parameters: u64,
    /// Bytes of the frozen scalars.
    #[serde(skip_serializing_if = "is_zero")]
    pub frozen_bytes: u64,
    /// Forward arithmetic (multiplications and additions) for one source token; 0 for a model
    /// without sources.
    pub encoder_flops_per_token: u64,
    /// Forward arithmetic for one target token, output layer included.
    pub decoder_flops_per_token: u64,
    /// Forward and backward arithmetic for one source token, if there are sources, and one target
    /// token, in all passes of an update.
    pub training_flops_per_token_pair: u64,
    /// Bytes of weights, gradients, the optimizer's state and the moving average, if there is one.
    pub training_state_bytes: u64,
    /// Bytes that a batch at the token limit keeps for the backward pass; on a GPU it is an
    /// estimate, without the scores of attention.
    pub activation_bytes: u64,
    /// Bytes of a training at its peak: the state, and the largest of three amounts: a batch with
    /// its loss; a copy of a parameter that is loaded or saved; the weights in the layout with
    /// which validations translate. Excludes the program itself, tokenizers and data.
    pub peak_bytes: u64,
    /// Length of the sequences of this estimate, in tokens.
    pub sequence_tokens: usize,
}

impl Cost {
    /// One line for the beginning of a training's output.
    pub fn summary(&self) -> String {
        format!(
            "model: {} parameters{}; training takes {} FLOPs a {}, {} for weights, gradients and \
             moments",
            grouped(self.parameters),
            match self.frozen_parameters {
                0 => String::new(),
                frozen => format!(" trained, {} frozen", grouped(frozen)),
            },
            scaled(self.training_flops_per_token_pair),
            if self.encoder_flops_per_token > 0 { "token pair" } else { "token" },
            bytes(self.training_state_bytes)
        )
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}
