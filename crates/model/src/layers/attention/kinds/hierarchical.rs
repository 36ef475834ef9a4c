//! Hierarchical attention: a token attends to the tokens of its own chunk, and to summaries of
//! other chunks. [`taper_ops`] computes it as one fused operation, in place of several of Candle's.
//!
//! ```text
//! O_i = (Σ_{j ∈ C} exp(q_i·k_j / √d) v_j + Σ_J |J| exp(q_i·k̄_J / √d) v̄_J) / Z_i
//! ```
//!
//! Here `C` are the tokens of the chunk to which token `i` belongs (under a causal mask, only those
//! up to `i`). `k̄_J` and `v̄_J` are the means of the keys and values of chunk `J`, which has `|J|`
//! tokens. `Z_i` is the sum of the weights.
//!
//! With one level of summaries, the `J` are all other chunks or, under a causal mask, all chunks
//! before that of token `i`. In a sequence of n tokens, a query then has about `chunk + n / chunk`
//! scores.
//!
//! With more levels, `chunk` chunks of level 1 form one chunk of level 2, and so on. At the highest
//! level, the `J` are all other chunks, as above. At each level below, they are only the chunks
//! that lie in the same chunk of the next higher level as token `i`. Under a causal mask, only
//! chunks before that of token `i` count, at every level. The number of scores of a query is about
//! `levels · chunk + n / chunkˡᵉᵛᵉˡˢ`.
//!
//! This is how Zhu and Soricut 2021 ("H-Transformer-1D", section 4) coarsen blocks of scores, but
//! queries are not coarsened, and the weight of a summary is multiplied by its number of tokens. If
//! a chunk is a single token, or holds the whole sequence, the result is full attention.

use super::rows::padded_rows;
use crate::layers::attention::{LayerPast, Mechanism, PastRows, Site, Texts, Within};
use candle_core::{Result, Tensor};
use std::sync::Arc;
use taper_ops::rng::name_key;
use taper_ops::{
    Dropout, HierarchicalSpec, Products, composed, hierarchical_attention,
    hierarchical_attention_arithmetic, kept_by_hierarchical_attention,
};

#[derive(Debug)]
pub(super) struct Hierarchical {
    pub(super) heads: usize,
    pub(super) causal: bool,
    /// Number of tokens in a chunk.
    pub(super) chunk: usize,
    /// Number of levels of summaries.
    pub(super) levels: usize,
    pub(super) dropout: f64,
    pub(super) products: Products,
    pub(super) site: u64,
}

impl Hierarchical {
    pub(super) fn new(site: &Site<'_>) -> Self {
        let config = site.config.attention(site.causal);
        Self {
            heads: site.config.heads,
            causal: site.causal,
            chunk: config.chunk,
            levels: config.levels,
            dropout: site.config.attention_dropout,
            products: site.products,
            site: name_key(site.name),
        }
    }

    pub(super) fn spec(&self, lengths: &Arc<[usize]>, dropout: Dropout) -> HierarchicalSpec {
        HierarchicalSpec {
            heads: self.heads,
            lengths: lengths.clone(),
            causal: self.causal,
            chunk: self.chunk,
            levels: self.levels,
            dropout,
            products: self.products,
        }
    }
}

impl Mechanism for Hierarchical {
    fn attend(&self, qkv: &Tensor, within: Within<'_>) -> Result<Tensor> {
        let Within { lengths, pass, .. } = within;
        let spec = self.spec(lengths, pass.dropout(self.dropout, self.site));
        hierarchical_attention(pass.tape(), qkv, &spec)
    }

    fn flops(&self, width: usize, length: usize) -> f64 {
        hierarchical_attention_arithmetic(&self.spec(&[length].into(), Dropout::none()), width)
    }

    fn kept(&self, width: usize, length: usize) -> f64 {
        let spec = self.spec(&[length].into(), Dropout::none());
        kept_by_hierarchical_attention(&spec, width) as f64
    }

    fn weights(&self, qkv: &Tensor, within: Within<'_>) -> Result<Tensor> {
        let Within { lengths, .. } = within;
        composed::hierarchical_attention_weights(qkv, &self.spec(lengths, Dropout::none()))
    }

    fn step(&self, qkv: &Tensor, past: &mut LayerPast, rows: &PastRows<'_>) -> Result<Tensor> {
        let (count, width) = (qkv.dim(0)?, qkv.dim(1)? / 3);
        past.cache.add_step(qkv.narrow(1, width, 2 * width)?.contiguous()?)?;
        let (all, of_rows) = past.tokens(rows, count)?;
        let lengths: Arc<[usize]> = of_rows.iter().map(Vec::len).collect();
        let longest = lengths.iter().copied().max().unwrap_or(0);
        let padded = padded_rows(&all, &of_rows, longest, false)?; // (R, T, 2·D)
        let query = qkv.narrow(1, 0, width)?.contiguous()?;
        let spec = self.spec(&lengths, Dropout::none());
        composed::hierarchical_attention_step(&query, &padded, &spec)?.to_dtype(qkv.dtype())
    }

    fn read(&self, qkv: &Tensor, past: &mut LayerPast, texts: &Texts<'_>) -> Result<Tensor> {
        let width = qkv.dim(1)? / 3;
        past.cache.add_text(qkv.narrow(1, width, 2 * width)?.contiguous()?)?;
        let spec = self.spec(&texts.lengths.into(), Dropout::none());
        hierarchical_attention(None, qkv, &spec)
    }
}
