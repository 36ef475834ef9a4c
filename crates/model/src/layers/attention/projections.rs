//! Projections of attention layers: their widths, and whether they have biases.

use crate::layers::linear::Linear;
use crate::{Builder, ModelConfig};
use candle_core::Result;

/// Sizes of a linear layer before or after attention.
pub(super) struct Projection {
    inputs: usize,
    /// Numbers of outputs of the matrices that the layer fuses.
    outputs: Vec<usize>,
    has_bias: bool,
}

impl Projection {
    /// Projection to query, key and value. If `parts` is 2, it makes only two vectors: one that is
    /// both query and key, and the value.
    pub(super) fn query_key_value(config: &ModelConfig, parts: usize) -> Self {
        let shape = config.attention_shape();
        let mut outputs = vec![shape.key_value_width(); parts];
        outputs[0] = shape.query_width();
        Self::from_states(config, outputs)
    }

    /// Projection to the query alone.
    pub(super) fn query(config: &ModelConfig) -> Self {
        Self::from_states(config, vec![config.attention_shape().query_width()])
    }

    /// Projection to key and value.
    pub(super) fn key_value(config: &ModelConfig) -> Self {
        Self::from_states(config, vec![config.attention_shape().key_value_width(); 2])
    }

    /// Projection of attention's result to the width of the model.
    pub(super) fn result(config: &ModelConfig) -> Self {
        let inputs = config.attention_shape().query_width();
        Self {
            inputs,
            outputs: vec![config.d_model],
            has_bias: config.has_attention_output_biases(),
        }
    }

    fn from_states(config: &ModelConfig, outputs: Vec<usize>) -> Self {
        Self { inputs: config.d_model, outputs, has_bias: config.has_query_key_value_biases() }
    }

    pub(super) fn build(&self, build: &mut Builder, name: &str) -> Result<Linear> {
        build.with_biases_if(self.has_bias, |build| {
            Linear::fused(build, name, self.inputs, &self.outputs)
        })
    }

    /// Number of outputs of all fused matrices together.
    pub(super) fn width(&self) -> usize {
        self.outputs.iter().sum()
    }
}
