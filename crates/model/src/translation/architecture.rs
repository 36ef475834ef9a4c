//! Choice of the layers of translation models by architecture.

use super::convolutional::ConvolutionalLayers;
use super::encoder_decoder::EncoderDecoder;
use super::recurrent::RecurrentLayers;
use super::transformer::TransformerLayers;
use crate::Builder;
use crate::config::{Architecture, ModelConfig};
use crate::cost::LayerCost;
use candle_core::Result;
use std::sync::Arc;

/// Makes the layers of a model of `config`.
pub(super) fn layers(build: &mut Builder, config: &ModelConfig) -> Result<Arc<dyn EncoderDecoder>> {
    Ok(match config.architecture {
        Architecture::Transformer => Arc::new(TransformerLayers::new(build, config)?),
        Architecture::Recurrent => Arc::new(RecurrentLayers::new(build, config)?),
        Architecture::Convolutional => Arc::new(ConvolutionalLayers::new(build, config)?),
    })
}

/// Cost of the layer with the index `layer`, from 0, in the decoder.
pub(super) fn layer_cost(config: &ModelConfig, layer: usize) -> LayerCost {
    match config.architecture {
        Architecture::Transformer => TransformerLayers::layer_cost(config, layer),
        Architecture::Recurrent => RecurrentLayers::layer_cost(config, layer),
        Architecture::Convolutional => ConvolutionalLayers::layer_cost(config),
    }
}
