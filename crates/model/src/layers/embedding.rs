//! Token embeddings with added positions.

use super::positions::{Added, to_compute};
use super::weight::Weight;
use crate::cost::PartCost;
use crate::{Builder, ModelConfig, Pass, Sequences};
use candle_core::{DType, Result, Tensor};
use std::sync::Arc;
use taper_ops::EmbeddingSpec;
use taper_ops::rng::name_key;

/// Computes `dropout(table[token] · √d_model + position)` (Vaswani et al. 2017, section 3.4).
#[derive(Debug, Clone)]
pub(crate) struct TokenEmbedding {
    table: Weight,
    positions: Added,
    scale: f64,
    dropout: f64,
    site: u64,
    activations: DType,
}

impl TokenEmbedding {
    /// `stack` is the name of the stack that it feeds; a learned position table is called
    /// `{stack}.positions`.
    pub(crate) fn new(
        build: &mut Builder,
        stack: &str,
        table: Weight,
        config: &ModelConfig,
    ) -> Result<Self> {
        Ok(Self {
            table,
            positions: Added::new(build, &format!("{stack}.positions"), config)?,
            scale: if config.scale_embeddings { (config.d_model as f64).sqrt() } else { 1.0 },
            dropout: config.embedding_dropout,
            site: name_key(&format!("{stack}.embedding")),
            activations: build.activations,
        })
    }

    /// Cost of the positions and of the embedded tokens. The model counts the table, which may be
    /// shared.
    pub(crate) fn cost(config: &ModelConfig) -> PartCost {
        Added::cost(config).keeping(config.d_model)
    }

    /// Embeds whole sequences.
    ///
    /// # Shapes
    /// N ids → `(N, D)`.
    pub(crate) fn forward(&self, sequences: &Sequences, pass: &Pass) -> Result<Tensor> {
        let ids = sequences.ids.as_slice().into();
        self.embed(ids, sequences.positions(), sequences.longest(), pass)
    }

    /// Embeds one new token for each row, at its position.
    ///
    /// # Shapes
    /// R tokens → `(R, D)`.
    pub(crate) fn step(&self, tokens: &[u32], at: &Arc<[u32]>, pass: &Pass) -> Result<Tensor> {
        let longest = at.iter().copied().max().map_or(0, |last| last as usize + 1);
        self.embed(tokens.into(), at.clone(), longest, pass)
    }

    fn embed(
        &self,
        ids: Arc<[u32]>,
        at: Arc<[u32]>,
        longest: usize,
        pass: &Pass,
    ) -> Result<Tensor> {
        let table = self.table.get(pass);
        let positions = self.positions.table(longest, pass, table.device())?;
        let dropout = pass.dropout(self.dropout, self.site);
        let spec = EmbeddingSpec { ids, positions: at, scale: self.scale, dropout };
        to_compute(
            taper_ops::embedding(pass.tape(), table, positions.as_ref(), &spec)?,
            self.activations,
        )
    }
}
