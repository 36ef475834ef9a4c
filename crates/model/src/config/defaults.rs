//! Defaults of a model's configuration, and conditions for leaving a value out of a recipe
//! (configuration file).

use super::*;

impl Default for ModelConfig {
    fn default() -> Self {
        Self {
            architecture: Architecture::default(),
            d_model: 512,
            d_ff: 2048,
            heads: 8,
            key_value_heads: None,
            head_width: None,
            attention_scale: None,
            query_key_norm: QueryKeyNorm::default(),
            encoder_layers: 6,
            decoder_layers: 6,
            activation: ActivationKind::default(),
            feed_forward: FeedForwardKind::default(),
            parallel_feed_forward: ParallelFeedForward::default(),
            norm: NormPlacement::default(),
            norm_kind: NormKind::default(),
            norm_epsilon: 1e-5,
            positions: Positions::default(),
            sinusoid_frequencies: SinusoidFrequencies::default(),
            position_offset: 0,
            relative_buckets: RelativeBuckets::default().count,
            relative_distance: RelativeBuckets::default().distance,
            relative_by_layer: false,
            rotary: RotaryConfig::default(),
            max_positions: 1024,
            image_encoder: ImageEncoder::default(),
            segments: 2,
            pooling: Pooling::default(),
            tied: Tied::default(),
            scale_embeddings: true,
            embedding_norm: false,
            biases: true,
            attention_biases: true,
            feed_forward_biases: true,
            query_key_value_biases: None,
            attention_output_biases: None,
            output_bias: false,
            output_scale: None,
            embedding_dropout: 0.1,
            attention_dropout: 0.1,
            feed_forward_dropout: 0.1,
            residual_dropout: 0.1,
            final_dropout: 0.0,
            encoder_attention: AttentionConfig::default(),
            decoder_attention: AttentionConfig::default(),
            experts: ExpertsConfig::default(),
            recurrent: RecurrentConfig::default(),
            convolutional: ConvolutionalConfig::default(),
            state_space: StateSpaceConfig::default(),
            embeddings: EmbeddingsConfig::default(),
            contrastive: ContrastiveConfig::default(),
            lora: LoraConfig::default(),
        }
    }
}

pub(super) fn is_zero(count: &usize) -> bool {
    *count == 0
}

pub(super) fn is_two(count: &usize) -> bool {
    *count == 2
}

pub(super) fn is_zero_rate(rate: &f64) -> bool {
    *rate == 0.0
}
