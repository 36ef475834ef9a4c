//! Layers one after the other: an encoder, or a decoder with or without one.

use super::block::{Attended, Block};
use super::guidance::Guide;
use super::positions::Relative;
use super::weight::{Builder, LayerNorm};
use crate::config::NormPlacement;
use crate::cost::PartCost;
use crate::{ModelConfig, Pass, Sequences};
use candle_core::{Result, Tensor};
use std::sync::Arc;

/// What the tokens of a stack see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StackKind {
    /// The whole sequence.
    Encoder,
    /// The past, and an encoder's output.
    Decoder,
    /// The past alone, as in a language model.
    DecoderOnly,
}

impl StackKind {
    pub(crate) fn is_causal(self) -> bool {
        matches!(self, Self::Decoder | Self::DecoderOnly)
    }

    pub(crate) fn attends_to_encoder(self) -> bool {
        self == Self::Decoder
    }
}

/// The output of an encoder `(M, D)`, as a decoder attends to it.
pub(crate) struct AttendedEncoder<'a> {
    pub(crate) hidden: &'a Tensor,
    pub(crate) lengths: &'a Arc<[usize]>,
    /// What guides one of the layers, if anything does.
    pub(crate) guide: Option<&'a Guide>,
}

/// Layers one after the other, with a final layer norm iff Pre-LN.
#[derive(Debug, Clone)]
pub(crate) struct Stack {
    pub(crate) blocks: Vec<Block>,
    pub(crate) relative: Relative,
    final_norm: Option<LayerNorm>,
}

impl Stack {
    pub(crate) fn new(
        build: &mut Builder<'_>,
        name: &str,
        config: &ModelConfig,
        layers: usize,
        kind: StackKind,
    ) -> Result<Self> {
        let relative = Relative::new(build, name, config, kind.is_causal())?;
        let blocks = (0..layers)
            .map(|i| Block::new(build, &format!("{name}.layers.{i}"), config, (kind, i)))
            .collect::<Result<_>>()?;
        let final_norm = match config.norm {
            NormPlacement::Pre => Some(LayerNorm::new(
                build,
                &format!("{name}.final_norm"),
                config.d_model,
                config.norm_epsilon,
            )?),
            NormPlacement::Post => None,
        };
        Ok(Self { blocks, relative, final_norm })
    }

    /// For one token of the stack's own sequence, and for one of the encoder that it attends to.
    pub(crate) fn cost(
        config: &ModelConfig,
        layers: usize,
        kind: StackKind,
    ) -> (PartCost, PartCost) {
        let final_norm = match config.norm {
            NormPlacement::Pre => LayerNorm::cost(config),
            NormPlacement::Post => PartCost::default(),
        };
        let groups = config.groups(kind.is_causal(), layers);
        let blocks: PartCost =
            groups.iter().map(|&(layer, count)| Block::cost(config, kind, layer) * count).sum();
        let own = Relative::cost(config) + blocks + final_norm;
        (own, Block::encoder_cost(config, kind) * layers)
    }

    /// Runs whole sequences; `encoded` is what a decoder attends to.
    ///
    /// # Shapes
    /// `x (N, D)` → `(N, D)`.
    pub(crate) fn forward(
        &self,
        mut x: Tensor,
        sequences: &Sequences,
        encoded: Option<&AttendedEncoder<'_>>,
        pass: &Pass,
    ) -> Result<Tensor> {
        let lengths: Arc<[usize]> = sequences.lengths.as_slice().into();
        let positions = self.relative.prepare(sequences, pass)?;
        for (layer, block) in self.blocks.iter().enumerate() {
            let key_value = match encoded {
                Some(encoded) => block.key_value(encoded.hidden, pass)?,
                None => None,
            };
            let attended = key_value.as_ref().zip(encoded).map(|(key_value, encoded)| Attended {
                key_value,
                query_lengths: &lengths,
                key_lengths: encoded.lengths,
                guide: encoded.guide.filter(|guide| guide.layer == layer),
            });
            x = block.forward(&x, &lengths, &positions, attended.as_ref(), pass)?;
        }
        self.finish(x, pass)
    }

    /// The final norm, where there is one.
    ///
    /// # Shapes
    /// `(N, D)` → `(N, D)`.
    pub(crate) fn finish(&self, x: Tensor, pass: &Pass) -> Result<Tensor> {
        match &self.final_norm {
            Some(norm) => norm.forward(&x, pass),
            None => Ok(x),
        }
    }
}
