//! Softmax attention (Vaswani et al. 2017, section 3.2.1) to all keys, or to the keys that a sparse
//! pattern makes visible. [`taper_ops`] computes it as one fused operation, in place of several of
//! Candle's.

use super::super::positions::PreparedPositions;
use super::{LayerPast, Mechanism, PastRows, Site, Texts, Within};
use crate::Pass;
use crate::config::AttentionKind;
use crate::cost::PartCost;
use candle_core::{Result, Tensor, bail};
use std::ops::Range;
use std::sync::Arc;
use taper_ops::rng::{mix, name_key};
use taper_ops::{
    AttentionShape, AttentionSpec, CachedRows, Products, Sparse, VisibleKeys, composed,
    computed_pairs, decoding_attention, keeps_scores, kept_by_attention, self_attention,
};

#[derive(Debug)]
pub(super) struct Softmax {
    shape: AttentionShape,
    causal: bool,
    /// Rule for the keys that a query sees, in addition to the causal mask; `None` without such a
    /// rule.
    sparse: Option<Sparse>,
    dropout: f64,
    products: Products,
    site: u64,
}

impl Softmax {
    pub(super) fn new(site: &Site<'_>) -> Self {
        let (config, key) = (site.config.attention(site.causal), name_key(site.name));
        let rule = Sparse {
            block: config.block,
            window: config.window,
            dilation: config.dilation,
            first: config.global_first,
            last: config.global_last,
            random: config.random,
            seed: mix(config.seed, &[key]),
        };
        Self {
            shape: site.config.attention_shape(),
            causal: site.causal,
            sparse: (site.kind() == AttentionKind::Sparse).then_some(rule),
            dropout: site.config.attention_dropout,
            products: site.products,
            site: key,
        }
    }

    fn spec(
        &self,
        lengths: &Arc<[usize]>,
        positions: &PreparedPositions,
        pass: &Pass,
    ) -> AttentionSpec {
        AttentionSpec {
            shape: self.shape,
            query_lengths: lengths.clone(),
            key_lengths: lengths.clone(),
            causal: self.causal,
            sparse: self.sparse,
            dual_chunk: positions.dual_chunk(),
            query_start: 0,
            slopes: positions.slopes.clone(),
            dropout: pass.dropout(self.dropout, self.site),
            products: self.products,
        }
    }

    /// Returns the keys of the cache that queries see.
    fn seen<'a>(
        &self,
        kept: CachedRows<'a>,
        (text, history): (&'a [Range<usize>], &'a [Vec<u32>]),
        positions: &'a PreparedPositions,
    ) -> VisibleKeys<'a> {
        VisibleKeys::Past {
            kept,
            text,
            history,
            bias: positions.bias.as_ref(),
            slopes: positions.slopes.as_ref(),
            sparse: self.sparse,
            dual_chunk: positions.dual_chunk(),
        }
    }

    /// Whether attention in a text of this length, read as a whole, is computed in tiles, by matrix
    /// products. A shorter text is read query by query, and has the same bits as if it were decoded
    /// token by token.
    fn is_long(&self, length: usize) -> bool {
        !keeps_scores(length, length, self.causal)
    }

    /// Returns the query part of each of N rows, which comes first. In dual chunk attention (rotary
    /// positions that restart in each chunk of tokens), it has several rotations of the query.
    ///
    /// For a query part of the width Q, and a key and a value of the width K:
    /// `(N, Q + 2·K)` → `(N, Q)`.
    fn query(&self, qkv: &Tensor) -> Result<Tensor> {
        let width = qkv.dim(1)? - 2 * self.shape.key_value_width();
        qkv.narrow(1, 0, width)?.contiguous()
    }

    /// Returns the key and the value of each of N rows, which follow the query part. For a query
    /// part of the width Q, and a key and a value of the width K: `(N, Q + 2·K)` → `(N, 2·K)`.
    fn key_value(&self, qkv: &Tensor) -> Result<Tensor> {
        let pair = 2 * self.shape.key_value_width();
        qkv.narrow(1, qkv.dim(1)? - pair, pair)?.contiguous()
    }
}

impl Mechanism for Softmax {
    fn attend(&self, qkv: &Tensor, within: Within<'_>) -> Result<Tensor> {
        let Within { lengths, positions, pass } = within;
        let spec = self.spec(lengths, positions, pass);
        self_attention(pass.tape(), qkv, positions.bias.as_ref(), &spec)
    }

    fn flops(&self, _width: usize, length: usize) -> f64 {
        let pass = Pass::evaluate();
        let spec = self.spec(&[length].into(), &PreparedPositions::default(), &pass);
        4.0 * computed_pairs(&spec) as f64 * self.shape.head_width as f64
    }

    /// Returns the cost of the pairs of query and key, of the result, and of the one scalar that is
    /// kept for each head, which is the logarithm of the sum of exponentials.
    fn cost(&self, _width: usize) -> PartCost {
        let width = self.shape.query_width();
        let heads = self.shape.heads;
        let cost = PartCost::scores(width).keeping(width + heads).with_heads(heads);
        match self.causal || self.sparse.is_some() {
            true => cost.masked(),
            false => cost,
        }
    }

    fn kept(&self, _width: usize, length: usize) -> f64 {
        let spec = self.spec(&[length].into(), &PreparedPositions::default(), &Pass::evaluate());
        kept_by_attention(&spec) as f64
    }

    fn weights(&self, qkv: &Tensor, within: Within<'_>) -> Result<Tensor> {
        let Within { lengths, positions, pass } = within;
        let spec = self.spec(lengths, positions, pass);
        let width = spec.queries_width();
        composed::attention_weights(
            &qkv.narrow(1, 0, width)?,
            &qkv.narrow(1, width, self.shape.key_value_width())?,
            positions.bias.as_ref(),
            &spec,
        )
    }

    fn step(&self, qkv: &Tensor, past: &mut LayerPast, rows: &PastRows<'_>) -> Result<Tensor> {
        let query = self.query(qkv)?;
        past.cache.add_step(self.key_value(qkv)?)?;
        let Some(cached_rows) = past.cache.kept() else { bail!("a step has no token") };
        let visible = self.seen(cached_rows, (rows.read, rows.history), rows.positions);
        decoding_attention(&query, visible, self.shape)
    }

    fn read(&self, qkv: &Tensor, past: &mut LayerPast, texts: &Texts<'_>) -> Result<Tensor> {
        let key_value = self.key_value(qkv)?;
        let mut parts = Vec::new();
        let mut first = 0;
        for texts_alike in texts.lengths.chunk_by(|&a, &b| self.is_long(a) == self.is_long(b)) {
            let tokens = texts_alike.iter().sum();
            let is_long = texts_alike.first().is_some_and(|&length| self.is_long(length));
            let qkv = qkv.narrow(0, first, tokens)?;
            parts.push(match texts.positions.bias {
                None if is_long => {
                    let spec = self.spec(&texts_alike.into(), texts.positions, &Pass::evaluate());
                    self_attention(None, &qkv.contiguous()?, None, &spec)?
                }
                _ => {
                    let cached_rows = CachedRows::Apart { text: Some(&key_value), steps: &[] };
                    let seen = &texts.seen[first..first + tokens];
                    let visible = self.seen(cached_rows, (seen, &[]), texts.positions);
                    decoding_attention(&self.query(&qkv)?, visible, self.shape)?
                }
            });
            first += tokens;
        }
        past.cache.add_text(key_value)?;
        match <[Tensor; 1]>::try_from(parts) {
            Ok([out]) => Ok(out),
            Err(parts) => Tensor::cat(&parts, 0),
        }
    }

    fn remember(&self, qkv: &Tensor, past: &mut LayerPast, _: &Texts<'_>) -> Result<()> {
        past.cache.add_text(self.key_value(qkv)?)
    }
}
