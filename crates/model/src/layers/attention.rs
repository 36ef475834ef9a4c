//! Multi-head attention layers (Vaswani et al. 2017, section 3.2.2) with fused projections.

use super::positions::PreparedPositions;
use super::weight::{Builder, Linear, Residual};
use crate::cost::PartCost;
use crate::{ModelConfig, Pass};
use candle_core::{Result, Tensor};
use std::ops::Range;
use std::sync::Arc;
use taper_ops::rng::name_key;
use taper_ops::{
    AttentionSpec, Products, Seen, composed, cross_attention, decoding_attention, rotary,
    self_attention,
};

/// The keys and values of one layer for the tokens before a new one.
pub(crate) struct Past<'a> {
    /// Those of texts that were read as a whole `(M, 2·D)`, and for each row its range of them.
    pub(crate) text: Option<(&'a Tensor, &'a [Range<usize>])>,
    /// `(R_j, 2·D)` of each token that was stepped.
    pub(crate) blocks: &'a mut Vec<Tensor>,
    /// For each of these and each row, the row of the block.
    pub(crate) history: &'a [Vec<u32>],
}

/// Self-attention: one projection makes query, key and value.
#[derive(Debug, Clone)]
pub(crate) struct SelfAttention {
    name: String,
    qkv: Linear,
    out: Linear,
    heads: usize,
    causal: bool,
    dropout: f64,
    products: Products,
    site: u64,
}

impl SelfAttention {
    pub(crate) fn new(
        build: &mut Builder<'_>,
        name: &str,
        config: &ModelConfig,
        causal: bool,
    ) -> Result<Self> {
        let width = config.d_model;
        Ok(Self {
            qkv: Linear::new(build, &format!("{name}.qkv"), width, 3 * width, 3)?,
            out: Linear::new(build, &format!("{name}.out"), width, width, 1)?,
            heads: config.heads,
            causal,
            dropout: config.attention_dropout,
            products: build.products,
            site: name_key(name),
            name: name.to_owned(),
        })
    }

    /// The three projections, what attention gives, and the projection of that.
    pub(crate) fn cost(config: &ModelConfig) -> PartCost {
        let width = config.d_model;
        PartCost::linear(width, width, config.biases) * 3
            + PartCost::scores(width).keeping(width)
            + PartCost::linear(width, width, config.biases)
    }

    /// Projects, and turns query and key where positions are rotary: `(N, D)` → `(N, 3·D)`.
    fn project(&self, x: &Tensor, rotations: Option<&Arc<[u32]>>, pass: &Pass) -> Result<Tensor> {
        let qkv = self.qkv.forward(x, pass)?;
        match rotations {
            Some(positions) => rotary(pass.tape(), &qkv, positions, self.heads, x.dim(1)?, 2),
            None => Ok(qkv),
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
            query_start: 0,
            slopes: positions.slopes.clone(),
            dropout: pass.dropout(self.dropout, self.site),
            products: self.products,
        }
    }

    /// `(N, D)` → `(N, D)`, added to the residual.
    pub(crate) fn forward(
        &self,
        x: &Tensor,
        residual: Residual<'_>,
        lengths: &Arc<[usize]>,
        positions: &PreparedPositions,
        pass: &Pass,
    ) -> Result<Tensor> {
        let qkv = self.project(x, positions.rotary.as_ref(), pass)?;
        let spec = self.spec(lengths, positions, pass);
        if pass.records_attention(&self.name) {
            let width = x.dim(1)?;
            let weights = composed::attention_weights(
                &qkv.narrow(1, 0, width)?,
                &qkv.narrow(1, width, width)?,
                positions.bias.as_ref(),
                &spec,
            )?;
            pass.record(&self.name, weights);
        }
        self.out.onto(
            &self_attention(pass.tape(), &qkv, positions.bias.as_ref(), &spec)?,
            residual,
            pass,
        )
    }

    /// Query, and key and value side by side: `(N, D)` → `(N, D)`, `(N, 2·D)`.
    fn project_apart(
        &self,
        x: &Tensor,
        positions: &PreparedPositions,
        pass: &Pass,
    ) -> Result<(Tensor, Tensor)> {
        let width = x.dim(1)?;
        let qkv = self.project(x, positions.rotary.as_ref(), pass)?;
        let query = qkv.narrow(1, 0, width)?.contiguous()?;
        Ok((query, qkv.narrow(1, width, 2 * width)?.contiguous()?))
    }

    /// One new token for each row, seeing itself and the tokens before it.
    ///
    /// `x (R, D)`; the blocks of `past` hold keys and values `(R_j, 2·D)` of each token so far and
    /// get those of this one, which its history counts already.
    pub(crate) fn step(
        &self,
        x: &Tensor,
        residual: Residual<'_>,
        past: Past<'_>,
        positions: &PreparedPositions,
        pass: &Pass,
    ) -> Result<Tensor> {
        let (query, key_value) = self.project_apart(x, positions, pass)?;
        past.blocks.push(key_value);
        let seen = Seen::Past {
            text: past.text,
            blocks: past.blocks,
            history: past.history,
            bias: positions.bias.as_ref(),
            slopes: positions.slopes.as_ref(),
        };
        self.out.onto(&decoding_attention(&query, seen, self.heads)?, residual, pass)
    }

    /// Whole texts at once, with what [`SelfAttention::step`] would give token by token: row `r` of
    /// `x (N, D)` sees `rows[r]`, of which it is the last. Also gives their keys and values `(N,
    /// 2·D)`.
    pub(crate) fn read(
        &self,
        x: &Tensor,
        residual: Residual<'_>,
        rows: &[Range<usize>],
        positions: &PreparedPositions,
        pass: &Pass,
    ) -> Result<(Tensor, Tensor)> {
        let (query, key_value) = self.project_apart(x, positions, pass)?;
        let seen = Seen::Past {
            text: Some((&key_value, rows)),
            blocks: &[],
            history: &[],
            bias: positions.bias.as_ref(),
            slopes: positions.slopes.as_ref(),
        };
        let out = self.out.onto(&decoding_attention(&query, seen, self.heads)?, residual, pass)?;
        Ok((out, key_value))
    }
}

/// Attention from the decoder to the encoder's result: one projection makes key and value.
#[derive(Debug, Clone)]
pub(crate) struct CrossAttention {
    name: String,
    q: Linear,
    kv: Linear,
    out: Linear,
    heads: usize,
    dropout: f64,
    products: Products,
    site: u64,
}

impl CrossAttention {
    pub(crate) fn new(build: &mut Builder<'_>, name: &str, config: &ModelConfig) -> Result<Self> {
        let width = config.d_model;
        Ok(Self {
            q: Linear::new(build, &format!("{name}.q"), width, width, 1)?,
            kv: Linear::new(build, &format!("{name}.kv"), width, 2 * width, 2)?,
            out: Linear::new(build, &format!("{name}.out"), width, width, 1)?,
            heads: config.heads,
            dropout: config.attention_dropout,
            products: build.products,
            site: name_key(name),
            name: name.to_owned(),
        })
    }

    /// As [`SelfAttention::cost`], for a token of the decoder.
    pub(crate) fn cost(config: &ModelConfig) -> PartCost {
        let width = config.d_model;
        PartCost::linear(width, width, config.biases).keeping(width)
            + PartCost::linear(width, width, config.biases)
    }

    /// Keys and values, which are made once for each token of the encoder.
    pub(crate) fn key_value_cost(config: &ModelConfig) -> PartCost {
        PartCost::linear(config.d_model, config.d_model, config.biases) * 2
    }

    /// Keys and values of the encoder's output.
    ///
    /// # Shapes
    /// `(M, D)` → `(M, 2·D)`.
    pub(crate) fn key_value(&self, encoded: &Tensor, pass: &Pass) -> Result<Tensor> {
        self.kv.forward(encoded, pass)
    }

    /// Row `r` of `x (R, D)`, a token being decoded, attends to rows `rows[r]` of `key_value (M,
    /// 2·D)`.
    pub(crate) fn step(
        &self,
        x: &Tensor,
        residual: Residual<'_>,
        key_value: &Tensor,
        rows: &[Range<usize>],
        pass: &Pass,
    ) -> Result<Tensor> {
        let query = self.q.forward(x, pass)?;
        self.out.onto(
            &decoding_attention(&query, Seen::Source { key_value, rows }, self.heads)?,
            residual,
            pass,
        )
    }

    /// `x (N, D)` attends to `key_value (M, 2·D)`.
    pub(crate) fn attend(
        &self,
        x: &Tensor,
        residual: Residual<'_>,
        key_value: &Tensor,
        (query_lengths, key_lengths): (&Arc<[usize]>, &Arc<[usize]>),
        pass: &Pass,
    ) -> Result<Tensor> {
        let query = self.q.forward(x, pass)?;
        let spec = AttentionSpec {
            heads: self.heads,
            query_lengths: query_lengths.clone(),
            key_lengths: key_lengths.clone(),
            causal: false,
            query_start: 0,
            slopes: None,
            dropout: pass.dropout(self.dropout, self.site),
            products: self.products,
        };
        if pass.records_attention(&self.name) {
            pass.record(
                &self.name,
                composed::attention_weights(
                    &query,
                    &key_value.narrow(1, 0, x.dim(1)?)?,
                    None,
                    &spec,
                )?,
            );
        }
        self.out.onto(
            &cross_attention(pass.tape(), &query, key_value, None, &spec)?,
            residual,
            pass,
        )
    }
}
