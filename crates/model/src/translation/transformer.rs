//! The layers of the Transformer (Vaswani et al. 2017, figure 1).

use super::encoder_decoder::EncoderDecoder;
use super::{DecodeState, EncoderOutput};
use crate::builder::tally::Stream;
use crate::cost::LayerCost;
use crate::layers::attention::{DecodedRows, LayerPast, PastRows};
use crate::layers::guidance::Guide;
use crate::layers::stack::StackKind;
use crate::layers::stack::block::Block;
use crate::layers::stack::{AttendedEncoder, Stack};
use crate::{Builder, ModelConfig, Pass, Sequences};
use candle_core::{Result, Tensor};
use std::sync::Arc;

/// The stacks of the encoder and of the decoder. Each of their layers is a [`Block`] of attention
/// and feed-forward layers.
#[derive(Debug)]
pub(super) struct TransformerLayers {
    encoder: Stack,
    decoder: Stack,
}

impl TransformerLayers {
    pub(super) fn new(build: &mut Builder, config: &ModelConfig) -> Result<Self> {
        let layers = (config.encoder_layers, config.decoder_layers);
        Ok(Self {
            encoder: build.in_stream(Stream::First, |build| {
                Stack::new(build, "encoder", config, layers.0, StackKind::Encoder)
            })?,
            decoder: Stack::new(build, "decoder", config, layers.1, StackKind::Decoder)?,
        })
    }

    pub(super) fn layer_cost(config: &ModelConfig, layer: usize) -> LayerCost {
        Block::cost(config, StackKind::Decoder, layer)
    }
}

impl EncoderDecoder for TransformerLayers {
    fn encode(&self, x: Tensor, source: &Sequences, pass: &Pass) -> Result<Tensor> {
        self.encoder.forward(x, source, None, pass) // (M, D): M source tokens, width D
    }

    fn decode(
        &self,
        x: Tensor,
        target: &Sequences,
        encoded: &EncoderOutput,
        guide: Option<&Guide>,
        pass: &Pass,
    ) -> Result<Tensor> {
        let attended =
            AttendedEncoder { hidden: &encoded.hidden, lengths: &encoded.lengths, guide };
        self.decoder.forward(x, target, Some(&attended), pass) // (N, D): N tokens
    }

    /// Computes what the layers of the decoder need for the first step. Returns two values, each
    /// with an entry for each layer. The first has tensors `(M, 2·K)` with the keys and then the
    /// values of the M source tokens, where K is the width of the keys of all heads together. The
    /// second has empty caches of the target tokens.
    fn start(&self, encoded: &EncoderOutput, pass: &Pass) -> Result<(Vec<Tensor>, Vec<LayerPast>)> {
        let layers = &self.decoder.blocks;
        let mut key_values = Vec::with_capacity(layers.len());
        for layer in layers {
            key_values.extend(layer.key_value(&encoded.hidden, pass)?);
        }
        Ok((key_values, vec![LayerPast::default(); layers.len()]))
    }

    fn step(
        &self,
        mut x: Tensor,
        state: &mut DecodeState,
        at: &Arc<[u32]>,
        pass: &Pass,
    ) -> Result<Tensor> {
        let positions = self.decoder.relative.prepare_cached(at, pass)?;
        let DecodeState { of_sources, rows: DecodedRows { layers, history, ranges }, .. } = state;
        for (layer, (block, past)) in self.decoder.blocks.iter().zip(layers).enumerate() {
            let rows = PastRows { read: &[], history, positions: positions.for_layer(layer) };
            let source = of_sources.get(layer).map(|key_value| (key_value, &**ranges));
            x = block.step(&x, (past, &rows), source, pass)?;
        }
        self.decoder.finish(x, pass)
    }

    /// Returns the name of the cross-attention in the layer before the last, or in the only layer.
    /// Its weights follow word alignments best (Garg et al. 2019, "Jointly Learning to Align and
    /// Translate with Transformer Models").
    fn aligning_layer(&self) -> Option<String> {
        let chosen = self.decoder.blocks.len().saturating_sub(2);
        Some(format!("decoder.layers.{chosen}.cross_attention"))
    }
}
