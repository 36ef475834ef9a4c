//! The encoder of BERT (Devlin et al. 2019, section 3): tokens, positions and segments in, a row for
//! each token and one for each text out.

use super::embedding::TokenEmbedding;
use super::head::picked;
use super::stack::{Stack, StackKind};
use super::weight::{LayerNorm, Linear, Weight};
use crate::cost::PartCost;
use crate::{Builder, ModelConfig, Pass, Sequences};
use candle_core::{Result, Tensor};
use std::sync::Arc;
use taper_ops::rng::name_key;
use taper_ops::{EmbeddingSpec, composed};

/// Kinds of segments: the first text of a pair, and the second.
pub(crate) const SEGMENTS: usize = 2;

/// `stack(dropout(norm(token + position + segment)))`.
#[derive(Debug, Clone)]
pub(crate) struct TextEncoder {
    tokens: TokenEmbedding,
    segments: Weight,
    norm: LayerNorm,
    dropout: f64,
    site: u64,
    stack: Stack,
}

impl TextEncoder {
    /// `table (V, D)` is the embedding of the tokens.
    pub(crate) fn new(build: &mut Builder, table: Weight, config: &ModelConfig) -> Result<Self> {
        // What is dropped is dropped after the norm.
        let undropped = ModelConfig { embedding_dropout: 0.0, ..config.clone() };
        let name = "encoder.embedding_norm";
        Ok(Self {
            tokens: TokenEmbedding::new(build, "encoder", table, &undropped)?,
            segments: build.embedding("encoder.segments.weight", SEGMENTS, config.d_model)?,
            norm: LayerNorm::new(build, name, config.d_model, config.norm_epsilon)?,
            dropout: config.embedding_dropout,
            site: name_key(name),
            stack: Stack::new(build, "encoder", config, config.encoder_layers, StackKind::Encoder)?,
        })
    }

    /// All but the embedding of the tokens.
    pub(crate) fn cost(config: &ModelConfig) -> PartCost {
        TokenEmbedding::cost(config)
            + PartCost::table(SEGMENTS, config.d_model)
            + LayerNorm::cost(config).keeping(2 * config.d_model)
            + Stack::cost(config, config.encoder_layers, StackKind::Encoder).0
    }

    /// Runs whole texts; `segments` has 0 or 1 for each token.
    ///
    /// # Shapes
    /// N tokens → `(N, D)`.
    pub(crate) fn forward(
        &self,
        text: &Sequences,
        segments: Arc<[u32]>,
        pass: &Pass,
    ) -> Result<Tensor> {
        let tokens = self.tokens.forward(text, pass)?; // (N, D)
        let all: Arc<[u32]> = (0..text.ids.len() as u32).collect();
        // Each row of the tokens, with that of its segment added.
        let spec = EmbeddingSpec {
            ids: all.clone(),
            positions: segments,
            scale: 1.0,
            dropout: taper_ops::Dropout::none(),
        };
        let x = taper_ops::embedding(pass.tape(), &tokens, Some(self.segments.get(pass)), &spec)?;
        let x = self.norm.forward(&x, pass)?;
        let dropout = pass.dropout(self.dropout, self.site);
        let x = if dropout.is_active() { picked(&x, all, dropout, pass)? } else { x };
        self.stack.forward(x, text, None, pass) // (N, D)
    }
}

/// One row for each text: `tanh(W h + b)` of the state of its first token.
#[derive(Debug, Clone)]
pub(crate) struct Pooler(Linear);

impl Pooler {
    pub(crate) fn new(build: &mut Builder, width: usize) -> Result<Self> {
        Ok(Self(Linear::new(build, "pooler", width, width, 1)?))
    }

    pub(crate) fn cost(config: &ModelConfig) -> PartCost {
        // Once for each text, which is next to nothing for a token.
        let linear = PartCost::linear(config.d_model, config.d_model, config.biases);
        PartCost { flops: 0.0, kept: 0.0, ..linear }
    }

    /// # Shapes
    /// `hidden (N, D)`, the numbers of B rows → `(B, D)`.
    pub(crate) fn forward(&self, hidden: &Tensor, rows: Arc<[u32]>, pass: &Pass) -> Result<Tensor> {
        let first = picked(hidden, rows, taper_ops::Dropout::none(), pass)?;
        let x = self.0.forward(&first, pass)?;
        composed::on_tape(pass.tape(), "tanh", &[&x], |inputs| inputs[0].tanh())
    }
}

/// The first row of each sequence.
pub(crate) fn first_rows(lengths: &[usize]) -> Arc<[u32]> {
    let mut first = 0;
    let row = |&length: &usize| {
        first += length as u32;
        first - length as u32
    };
    lengths.iter().map(row).collect()
}
