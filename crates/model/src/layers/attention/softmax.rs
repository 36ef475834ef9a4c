//! Softmax attention (Vaswani et al. 2017, section 3.2.1), to all keys or to those that a sparse
//! pattern lets a query see: fused in [`taper_ops`].

use super::super::positions::PreparedPositions;
use super::{LayerPast, Mechanism, PastRows, Site, Texts};
use crate::Pass;
use crate::config::AttentionKind;
use crate::cost::PartCost;
use candle_core::{Result, Tensor, bail};
use std::ops::Range;
use std::sync::Arc;
use taper_ops::rng::{mix, name_key};
use taper_ops::{
    AttentionSpec, CachedRows, Products, Sparse, VisibleKeys, composed, computed_pairs,
    decoding_attention, kept_by_attention, self_attention,
};

#[derive(Debug)]
pub(super) struct Softmax {
    heads: usize,
    causal: bool,
    /// Keys that a query sees; `None`: all.
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
            heads: site.config.heads,
            causal: site.causal,
            sparse: (site.kind() == AttentionKind::Sparse).then_some(rule),
            dropout: site.config.attention_dropout,
            products: site.products,
            site: key,
        }
    }

    /// Cost of the attention's result, and of the logarithm of the sum of each head's exponentials.
    pub(super) fn cost(site: &Site<'_>) -> PartCost {
        let config = site.config;
        let cost = PartCost::scores(config.d_model)
            .keeping(config.d_model + config.heads)
            .with_heads(config.heads);
        match site.causal || site.kind() == AttentionKind::Sparse {
            true => cost.masked(),
            false => cost,
        }
    }

    fn spec(
        &self,
        lengths: &Arc<[usize]>,
        positions: &PreparedPositions,
        pass: &Pass,
    ) -> AttentionSpec {
        AttentionSpec {
            heads: self.heads,
            query_lengths: lengths.clone(),
            key_lengths: lengths.clone(),
            causal: self.causal,
            sparse: self.sparse,
            query_start: 0,
            slopes: positions.slopes.clone(),
            dropout: pass.dropout(self.dropout, self.site),
            products: self.products,
        }
    }

    /// Keys of the cache that queries see.
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
        }
    }

    /// Splits `(N, 3·D)` into `(N, D)` and `(N, 2·D)`: query, and key and value.
    fn apart(qkv: &Tensor) -> Result<(Tensor, Tensor)> {
        let width = qkv.dim(1)? / 3;
        let query = qkv.narrow(1, 0, width)?.contiguous()?;
        Ok((query, qkv.narrow(1, width, 2 * width)?.contiguous()?))
    }
}

impl Mechanism for Softmax {
    fn attend(
        &self,
        qkv: &Tensor,
        lengths: &Arc<[usize]>,
        positions: &PreparedPositions,
        pass: &Pass,
    ) -> Result<Tensor> {
        let spec = self.spec(lengths, positions, pass);
        self_attention(pass.tape(), qkv, positions.bias.as_ref(), &spec)
    }

    fn flops(&self, width: usize, length: usize) -> f64 {
        let pass = Pass::evaluate();
        let spec = self.spec(&[length].into(), &PreparedPositions::default(), &pass);
        4.0 * computed_pairs(&spec, width) as f64 * (width / self.heads) as f64
    }

    fn kept(&self, width: usize, length: usize) -> f64 {
        let spec = self.spec(&[length].into(), &PreparedPositions::default(), &Pass::evaluate());
        kept_by_attention(&spec, width) as f64
    }

    fn weights(
        &self,
        qkv: &Tensor,
        lengths: &Arc<[usize]>,
        positions: &PreparedPositions,
        pass: &Pass,
    ) -> Result<Tensor> {
        let width = qkv.dim(1)? / 3;
        composed::attention_weights(
            &qkv.narrow(1, 0, width)?,
            &qkv.narrow(1, width, width)?,
            positions.bias.as_ref(),
            &self.spec(lengths, positions, pass),
        )
    }

    fn step(
        &self,
        qkv: &Tensor,
        past: &mut LayerPast,
        rows: &PastRows<'_>,
        positions: &PreparedPositions,
    ) -> Result<Tensor> {
        let (query, key_value) = Self::apart(qkv)?;
        past.cache.add_step(key_value)?;
        let Some(kept) = past.cache.kept() else { bail!("a step has no token") };
        let seen = self.seen(kept, (rows.read, rows.history), positions);
        decoding_attention(&query, seen, self.heads)
    }

    fn read(
        &self,
        qkv: &Tensor,
        past: &mut LayerPast,
        texts: &Texts<'_>,
        positions: &PreparedPositions,
    ) -> Result<Tensor> {
        let (query, key_value) = Self::apart(qkv)?;
        let kept = CachedRows::Apart { text: Some(&key_value), steps: &[] };
        let seen = self.seen(kept, (texts.seen, &[]), positions);
        let out = decoding_attention(&query, seen, self.heads)?;
        past.cache.add_text(key_value)?;
        Ok(out)
    }
}
