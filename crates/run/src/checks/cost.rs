//! Cost of a model: parameters, arithmetic per token, memory.

use serde::Serialize;

use crate::numbers::{bytes, grouped, scaled};

/// Counts of a model and its training.
#[derive(Debug, Clone, Serialize)]
pub struct Cost {
    /// Number of trained scalars.
    pub parameters: u64,
    /// Number of frozen scalars, to which adapters are added; 0 without adapters.
    #[serde(skip_serializing_if = "is_zero")]
    pub frozen_parameters: u64,
    /// Bytes of the frozen scalars.
    #[serde(skip_serializing_if = "is_zero")]
    pub frozen_bytes: u64,
    /// Arithmetic (multiplications and additions) of a forward pass for each source token; 0 for a
    /// model without sources.
    pub encoder_flops_per_token: u64,
    /// Arithmetic of a forward pass for each target token, including the output layer.
    pub decoder_flops_per_token: u64,
    /// Arithmetic of all forward and backward passes of an update for each pair of a source token,
    /// if there are sources, and a target token.
    pub training_flops_per_token_pair: u64,
    /// Bytes of weights, gradients, the optimizer's state and the moving average, if there is one.
    pub training_state_bytes: u64,
    /// Bytes that a batch at the token limit keeps for the backward pass. On a GPU this is an
    /// estimate without the scores of attention.
    pub activation_bytes: u64,
    /// Bytes of a training at its peak, without the program itself, tokenizers and data. It is the
    /// state plus the largest of these: a batch with its loss; a copy of a parameter that is loaded
    /// or saved; the weights in the layout with which validations translate.
    pub peak_bytes: u64,
    /// Length of the sequences for which this is estimated, in tokens.
    pub sequence_tokens: usize,
}

impl Cost {
    /// One line for the output at the beginning of a training.
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
