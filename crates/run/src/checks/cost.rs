//! Cost of a model: parameters, arithmetic per token, memory.

use serde::Serialize;

use crate::numbers::{bytes, grouped, scaled};

/// Parameters, arithmetic and memory of a model and its training.
#[derive(Debug, Clone, Serialize)]
pub struct Cost {
    /// Number of trained parameters, counted as single numbers (scalars).
    pub parameters: u64,
    /// Number of frozen parameters, to which LoRA adapters are added, counted as scalars; 0 without
    /// adapters.
    #[serde(skip_serializing_if = "is_zero")]
    pub frozen_parameters: u64,
    /// Size of the frozen parameters in bytes.
    #[serde(skip_serializing_if = "is_zero")]
    pub frozen_bytes: u64,
    /// Arithmetic operations (multiplications and additions) in a forward pass per source token; 0
    /// for a model that reads no sources.
    pub encoder_flops_per_token: u64,
    /// Arithmetic operations in a forward pass per target token, including the output layer.
    pub decoder_flops_per_token: u64,
    /// Arithmetic operations in all forward and backward passes of an update, per pair of one
    /// source token and one target token; for a model without sources, per token.
    pub training_flops_per_token_pair: u64,
    /// Bytes of weights, gradients, the optimizer's state and the moving average, if there is one.
    pub training_state_bytes: u64,
    /// Estimated bytes that are kept for the backward pass of a batch with the largest allowed
    /// number of tokens. On a GPU, this estimate leaves out the attention scores.
    pub activation_bytes: u64,
    /// Estimated peak memory of a training in bytes, without the program itself, tokenizers and
    /// data. It is `training_state_bytes` plus temporary memory. On a GPU, the temporary memory is
    /// `activation_bytes`. On the CPU, it is the largest of three amounts: the memory for a batch
    /// and its loss; the memory for copies of a parameter while it is loaded or saved; and, if
    /// validations translate, the memory for a copy of the weights in the order in which matrix
    /// kernels read them.
    pub peak_bytes: u64,
    /// Length in tokens of the sequences for which the fields above are estimated.
    pub sequence_tokens: usize,
}

impl Cost {
    /// Summary of the cost in one line, which is printed when a training begins.
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
