//! What a model costs: parameters, arithmetic per token, memory.

use candle_core::Device;
use serde::Serialize;
use taper_model::{ModelConfig, Transformer};

use crate::config::RunConfig;

/// Bytes of one f32.
const F32: u64 = 4;

/// Counts of a model.
#[derive(Debug, Clone, Serialize)]
pub struct Cost {
    /// Trained scalars.
    pub parameters: u64,
    /// Forward arithmetic (multiplications and additions) for one source token.
    pub encoder_flops_per_token: u64,
    /// Forward arithmetic for one target token, output layer included.
    pub decoder_flops_per_token: u64,
    /// Forward and backward for one source and one target token, in all passes that an update
    /// makes of them.
    pub training_flops_per_token_pair: u64,
    /// Weights, gradients and the optimizer's two moments.
    pub training_state_bytes: u64,
    /// Estimate of what a batch at the token limit keeps for the backward pass.
    pub activation_bytes: u64,
}

impl Cost {
    /// Counts `model`, which was built from `config`, for training on `device`.
    pub fn of(config: &RunConfig, model: &Transformer, device: &Device) -> Self {
        let parameters = model.parameters().len() as u64;
        let vocabulary = model.vocab_target();
        let (encoder, decoder) = flops(&config.model, vocabulary);
        let passes = config.training.objective().passes();
        let tokens = passes * config.data.batching.planned_tokens();
        Self {
            parameters,
            encoder_flops_per_token: encoder,
            decoder_flops_per_token: decoder,
            // The backward pass makes two products for each of the forward pass.
            training_flops_per_token_pair: passes as u64 * 3 * (encoder + decoder),
            training_state_bytes: training_state_bytes(config, parameters),
            activation_bytes: activation_bytes(&config.model, vocabulary, device, tokens, tokens),
        }
    }

    /// One line for the head of a training run.
    pub fn summary(&self) -> String {
        format!(
            "model: {} parameters; training takes {} FLOPs a token pair, {} for weights, gradients and moments",
            grouped(self.parameters),
            scaled(self.training_flops_per_token_pair),
            bytes(self.training_state_bytes)
        )
    }
}

/// Bytes of weights, gradients, the optimizer's two moments and the moving average where there is
/// one.
pub fn training_state_bytes(config: &RunConfig, parameters: u64) -> u64 {
    let copies = 4 + u64::from(config.training.ema_decay > 0.0);
    parameters.saturating_mul(copies * F32)
}

/// Forward FLOPs of the matrix products for one source and one target token:
/// two for each weight a token meets. Attention scores, which grow with the
/// sentence, are left out; below 100 tokens they are a few per cent.
fn flops(model: &ModelConfig, target_vocabulary: usize) -> (u64, u64) {
    let (width, inner) = (model.d_model as u64, model.d_ff as u64);
    let feed_forward = 2 * width * inner;
    let encoder_layer = 4 * width * width + feed_forward;
    // The keys and values of cross-attention are made once for each source token.
    let cross_memory = 2 * width * width;
    let decoder_layer = 4 * width * width + 2 * width * width + feed_forward;
    let decoder_layers = model.decoder_layers as u64;
    let encoder = model.encoder_layers as u64 * encoder_layer + decoder_layers * cross_memory;
    let decoder = decoder_layers * decoder_layer + width * target_vocabulary as u64;
    (2 * encoder, 2 * decoder)
}

/// Estimate of the memory that a training batch keeps until its backward pass: an upper bound for
/// the fused operations of the CPU, which do not keep the outputs of norms.
///
/// Counted in f32 for each token and layer: norm inputs and outputs, packed
/// queries, keys and values, attention output, the feed-forward layer before
/// and after its nonlinearity; on the target side also logits and their
/// gradient, but for the CPU, whose loss is computed some rows at a time.
pub fn activation_bytes(
    model: &ModelConfig,
    target_vocabulary: usize,
    device: &Device,
    source_tokens: usize,
    target_tokens: usize,
) -> u64 {
    let logits = if device.is_cpu() { 0 } else { 2 * target_vocabulary as u64 };
    let (width, inner) = (model.d_model as u64, model.d_ff as u64);
    let attention = 3 * width + width + width;
    let sublayer = 2 * width;
    let feed_forward = 2 * inner + width;
    let encoder_token = model.encoder_layers as u64 * (attention + feed_forward + 2 * sublayer)
        + model.decoder_layers as u64 * 2 * width;
    let decoder_token = model.decoder_layers as u64
        * (attention + 3 * width + feed_forward + 3 * sublayer)
        + logits;
    F32 * (source_tokens as u64 * encoder_token + target_tokens as u64 * decoder_token)
}

/// `12,345,678`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1.5 G`: a count with a decimal prefix.
pub fn scaled(number: u64) -> String {
    let number = number as f64;
    for (unit, size) in [("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)] {
        if number >= size {
            return format!("{:.1} {unit}", number / size);
        }
    }
    format!("{number}")
}

/// `1.5 GiB`.
pub fn bytes(number: u64) -> String {
    let value = number as f64;
    for (unit, power) in [("GiB", 30), ("MiB", 20), ("KiB", 10)] {
        let size = f64::from(1u32 << power);
        if value >= size {
            return format!("{:.1} {unit}", value / size);
        }
    }
    format!("{number} B")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_naturally() {
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(grouped(12), "12");
        assert_eq!(scaled(1_500_000), "1.5 M");
        assert_eq!(bytes(3 << 29), "1.5 GiB");
    }

    #[test]
    fn logits_are_not_kept_on_the_cpu() {
        let (model, device) = (ModelConfig::default(), Device::Cpu);
        let kept = |vocabulary, target| activation_bytes(&model, vocabulary, &device, 1000, target);
        assert_eq!(kept(100, 1000), kept(100_000, 1000));
        assert!(kept(100, 2000) > kept(100, 1000));
    }

    #[test]
    fn flops_of_the_base_model_by_hand() {
        let model = ModelConfig::default();
        let (encoder, decoder) = flops(&model, 1000);
        let d = 512u64;
        assert_eq!(encoder, 2 * (6 * (4 * d * d + 2 * d * 2048) + 6 * 2 * d * d));
        assert_eq!(decoder, 2 * (6 * (6 * d * d + 2 * d * 2048) + d * 1000));
    }
}
