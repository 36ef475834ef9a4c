//! Attention from a decoder to an encoder; it is full, whatever the kind of self-attention.

use super::super::block::Attended;
use super::super::weight::{Linear, Residual};
use crate::cost::PartCost;
use crate::{Builder, ModelConfig, Pass};
use candle_core::{Result, Tensor};
use std::ops::Range;
use taper_ops::rng::name_key;
use taper_ops::{
    AttentionSpec, Products, VisibleKeys, composed, cross_attention, decoding_attention,
};

/// Attention from the decoder to the encoder's output: one projection makes key and value.
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
    pub(crate) fn new(build: &mut Builder, name: &str, config: &ModelConfig) -> Result<Self> {
        let width = config.d_model;
        let mut linear = |part: &str, parts: usize| {
            let name = format!("{name}.{part}");
            build.with_biases_if(config.attention_biases, |build| {
                Linear::new(build, &name, width, parts * width, parts)
            })
        };
        let (q, kv, out) = (linear("q", 1)?, linear("kv", 2)?, linear("out", 1)?);
        Ok(Self {
            q,
            kv,
            out,
            heads: config.heads,
            dropout: config.attention_dropout,
            products: build.products,
            site: name_key(name),
            name: name.to_owned(),
        })
    }

    /// Cost for a token of the decoder, as [`SelfAttention::cost`].
    pub(crate) fn cost(config: &ModelConfig) -> PartCost {
        let width = config.d_model;
        let linear = PartCost::linear(width, width, config.has_attention_biases());
        linear.keeping(width + config.heads).with_heads(config.heads) + linear
    }

    /// Cost of keys and values, which are computed once for each token of the encoder.
    pub(crate) fn key_value_cost(config: &ModelConfig) -> PartCost {
        PartCost::linear(config.d_model, config.d_model, config.has_attention_biases()) * 2
    }

    /// Computes keys and values of the encoder's output.
    ///
    /// # Shapes
    /// `(M, D)` → `(M, 2·D)`.
    pub(crate) fn key_value(&self, encoded: &Tensor, pass: &Pass) -> Result<Tensor> {
        self.kv.forward(encoded, pass)
    }

    /// Attends from row `r` of `x (R, D)`, a token being decoded, to rows `rows[r]` of
    /// `key_value (M, 2·D)`.
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
            &decoding_attention(&query, VisibleKeys::Source { key_value, rows }, self.heads)?,
            residual,
            pass,
        )
    }

    /// Attends from `x (N, D)` to keys and values `(M, 2·D)`.
    pub(crate) fn attend(
        &self,
        x: &Tensor,
        residual: Residual<'_>,
        to: &Attended<'_>,
        pass: &Pass,
    ) -> Result<Tensor> {
        let Attended { key_value, query_lengths, key_lengths, guide } = *to;
        let query = self.q.forward(x, pass)?;
        let spec = AttentionSpec {
            heads: self.heads,
            query_lengths: query_lengths.clone(),
            key_lengths: key_lengths.clone(),
            causal: false,
            sparse: None,
            query_start: 0,
            slopes: None,
            dropout: pass.dropout(self.dropout, self.site),
            products: self.products,
        };
        if let Some(guide) = guide {
            guide.add_loss(&query, key_value, &spec, pass)?;
        }
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
        let attended = cross_attention(pass.tape(), &query, key_value, None, &spec)?;
        self.out.onto(&pass.unmasked(&self.name, attended, self.heads)?, residual, pass)
    }
}
