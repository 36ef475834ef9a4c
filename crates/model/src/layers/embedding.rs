//! Token embeddings, and positions that are added to them.

use super::head::scaled;
use super::norm::Norm;
use super::positions::Added;
use super::weight::Weight;
use crate::cost::PartCost;
use crate::pass::recorder::StatePoint;
use crate::{Builder, ModelConfig, Pass, Sequences};
use candle_core::{DType, Result, Tensor};
use std::sync::Arc;
use taper_ops::rng::name_key;
use taper_ops::{Dropout, EmbeddingSpec, converted};

/// Computes `dropout(norm(x))` for embedded tokens `x` (Devlin et al. 2019, section 3).
#[derive(Debug, Clone)]
pub(crate) struct EmbeddingNorm {
    norm: Norm,
    dropout: f64,
    site: u64,
}

impl EmbeddingNorm {
    /// Makes the norm. Its name is `{stack}.embedding_norm`.
    pub(crate) fn new(build: &mut Builder, stack: &str, config: &ModelConfig) -> Result<Self> {
        let name = format!("{stack}.embedding_norm");
        // The backward pass keeps the input of the norm and its result.
        build.count(PartCost::kept(config.d_model.saturating_mul(2)));
        Ok(Self {
            norm: Norm::new(build, &name, config.d_model, config)?,
            dropout: config.embedding_dropout,
            site: name_key(&name),
        })
    }

    /// Normalises embedded tokens, and applies dropout: `(N, D)` → `(N, D)` for N tokens of the
    /// width D.
    pub(crate) fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let x = self.norm.forward(x, pass)?;
        let dropout = pass.dropout(self.dropout, self.site);
        match dropout.is_active() {
            true => scaled(&x, 1.0, dropout, pass),
            false => Ok(x),
        }
    }
}

/// Computes `dropout(table[token] · √d_model + position)` (Vaswani et al. 2017, section 3.4). With
/// `embedding_norm`, the sum is normalised before the dropout.
#[derive(Debug, Clone)]
pub(crate) struct TokenEmbedding {
    /// Name of the stack that reads the tokens.
    stack: Arc<str>,
    table: Weight,
    positions: Added,
    norm: Option<EmbeddingNorm>,
    scale: f64,
    dropout: f64,
    site: u64,
    activations: DType,
}

impl TokenEmbedding {
    /// Makes the embedding of the stack called `stack`. If positions are learned, their table is
    /// called `{stack}.positions`.
    pub(crate) fn new(
        build: &mut Builder,
        stack: &str,
        table: Weight,
        config: &ModelConfig,
    ) -> Result<Self> {
        let positions = Added::new(build, &format!("{stack}.positions"), config)?;
        build.count(PartCost::kept(config.d_model));
        let norm = match config.embedding_norm {
            true => Some(EmbeddingNorm::new(build, stack, config)?),
            false => None,
        };
        Ok(Self {
            stack: stack.into(),
            table,
            positions,
            norm,
            scale: if config.scale_embeddings { (config.d_model as f64).sqrt() } else { 1.0 },
            dropout: config.embedding_dropout,
            site: name_key(&format!("{stack}.embedding")),
            activations: build.activations,
        })
    }

    /// Embeds whole sequences.
    ///
    /// # Shapes
    /// N ids → `(N, D)`.
    pub(crate) fn forward(&self, sequences: &Sequences, pass: &Pass) -> Result<Tensor> {
        let ids = sequences.ids.as_slice().into();
        self.embed(ids, sequences.positions(), sequences.longest(), pass)
    }

    /// Embeds one new token of each of R rows (texts that are decoded), at its position in `at`.
    ///
    /// # Shapes
    /// R tokens → `(R, D)`.
    pub(crate) fn step(&self, tokens: &[u32], at: &Arc<[u32]>, pass: &Pass) -> Result<Tensor> {
        let longest = at.iter().copied().max().map_or(0, |last| last as usize + 1);
        self.embed(tokens.into(), at.clone(), longest, pass)
    }

    /// Returns the index of a row for each of `ids`, and the f32 table that has these rows. This is
    /// the whole table or, if a frozen table is held in bf16 or the table is in a file, only the
    /// rows of `ids`.
    fn read(&self, ids: Arc<[u32]>, pass: &Pass) -> Result<(Arc<[u32]>, Tensor)> {
        let table = self.table.get(pass);
        let rows = match pass.packs() {
            Some(packs) if packs.is_mapped(table) => packs.rows(table, &ids)?,
            _ if table.dtype() == DType::BF16 => {
                let numbers = Tensor::from_slice(&ids, ids.len(), table.device())?;
                table.index_select(&numbers, 0)?.to_dtype(DType::F32)?
            }
            _ => return Ok((ids, table.clone())),
        };
        Ok(((0..ids.len() as u32).collect(), rows))
    }

    /// Records the vectors of tokens and of positions, before they are added.
    fn record(
        &self,
        table: &Tensor,
        ids: &[u32],
        positions: Option<(&Tensor, &Arc<[u32]>)>,
        pass: &Pass,
    ) -> Result<()> {
        let rows = |table: &Tensor, numbers: &[u32]| {
            table.index_select(&Tensor::from_slice(numbers, numbers.len(), table.device())?, 0)
        };
        let tokens = (rows(table, ids)? * self.scale)?;
        pass.record_state(&self.stack, 0, StatePoint::Token, &tokens);
        if let Some((table, numbers)) = positions {
            pass.record_state(&self.stack, 0, StatePoint::Position, &rows(table, numbers)?);
        }
        Ok(())
    }

    fn embed(
        &self,
        ids: Arc<[u32]>,
        at: Arc<[u32]>,
        longest: usize,
        pass: &Pass,
    ) -> Result<Tensor> {
        let (ids, table) = self.read(ids, pass)?;
        let (positions, rows) = self.positions.table(at, longest, pass, table.device())?;
        let dropout = match &self.norm {
            Some(_) => Dropout::none(),
            None => pass.dropout(self.dropout, self.site),
        };
        if pass.records_states() {
            self.record(&table, &ids, positions.as_ref().map(|table| (table, &rows)), pass)?;
        }
        let spec = EmbeddingSpec { ids, positions: rows, scale: self.scale, dropout };
        let x = taper_ops::embedding(pass.tape(), &table, positions.as_ref(), &spec)?;
        let x = converted(pass.tape(), &x, self.activations)?;
        match &self.norm {
            Some(norm) => norm.forward(&x, pass),
            None => Ok(x),
        }
    }
}
