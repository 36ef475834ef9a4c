//! Interface of architectures of translation models: layers that read embedded sources, and layers
//! that write targets, whole or token by token.

use super::convolutional::ConvolutionalLayers;
use super::recurrent::RecurrentLayers;
use super::transformer::TransformerLayers;
use super::{DecodeState, Encoded};
use crate::config::{Architecture, ModelConfig};
use crate::cost::PartCost;
use crate::layers::attention::LayerPast;
use crate::layers::guidance::Guide;
use crate::{Builder, Pass, Sequences};
use candle_core::{Result, Tensor};
use std::fmt::Debug;
use std::sync::Arc;

/// Layers of a translation model. Embeddings, output and loss belong to the model.
pub(crate) trait EncoderDecoder: Debug + Send + Sync {
    /// Reads whole sources.
    ///
    /// # Shapes
    /// Embedded `(M, D)` → rows that the decoder attends to, `(M, E)`.
    fn encode(&self, x: Tensor, source: &Sequences, pass: &Pass) -> Result<Tensor>;

    /// Writes whole targets (teacher forcing). Only a Transformer's attention can be guided.
    ///
    /// # Shapes
    /// Embedded `(N, D)` → `(N, D)`.
    fn decode(
        &self,
        x: Tensor,
        target: &Sequences,
        encoded: &Encoded,
        guide: Option<&Guide>,
        pass: &Pass,
    ) -> Result<Tensor>;

    /// Prepares for the first token: what is computed once from the sources, and the state of each
    /// layer.
    fn start(&self, encoded: &Encoded, pass: &Pass) -> Result<(Vec<Tensor>, Vec<LayerPast>)>;

    /// Writes one token for each row of `state`, at positions `at`.
    ///
    /// # Shapes
    /// Embedded `(R, D)` → `(R, D)`.
    fn step(
        &self,
        x: Tensor,
        state: &mut DecodeState,
        at: &Arc<[u32]>,
        pass: &Pass,
    ) -> Result<Tensor>;

    /// Layer whose attention shows best from which source tokens a target token was made; `None`
    /// without attention to the source.
    fn aligning_layer(&self) -> Option<String>;
}

/// Makes the layers of a model of `config`.
pub(super) fn layers(build: &mut Builder, config: &ModelConfig) -> Result<Arc<dyn EncoderDecoder>> {
    Ok(match config.architecture {
        Architecture::Transformer => Arc::new(TransformerLayers::new(build, config)?),
        Architecture::Recurrent => Arc::new(RecurrentLayers::new(build, config)?),
        Architecture::Convolutional => Arc::new(ConvolutionalLayers::new(build, config)?),
    })
}

/// Costs of the layers for a token of the source, and for one of the target.
pub(super) fn cost(config: &ModelConfig) -> (PartCost, PartCost) {
    match config.architecture {
        Architecture::Transformer => TransformerLayers::cost(config),
        Architecture::Recurrent => RecurrentLayers::cost(config),
        Architecture::Convolutional => ConvolutionalLayers::cost(config),
    }
}

/// Cost of a layer of the decoder, counted from 0.
pub(super) fn layer_cost(config: &ModelConfig, layer: usize) -> PartCost {
    match config.architecture {
        Architecture::Transformer => TransformerLayers::layer_cost(config, layer),
        Architecture::Recurrent => RecurrentLayers::layer_cost(config, layer),
        Architecture::Convolutional => ConvolutionalLayers::layer_cost(config),
    }
}
