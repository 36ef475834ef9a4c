//! Attention from a decoder to an encoder. It is always full, whatever the kind of self-attention.

use super::super::linear::{Linear, Residual};
use super::attended::Attended;
use super::projections::Projection;
use super::query_key_norm::{Normed, QueryKeyNorms};
use crate::builder::tally::Stream;
use crate::cost::PartCost;
use crate::pass::recorder::ProjectionRecord;
use crate::{Builder, ModelConfig, Pass};
use candle_core::{Result, Tensor};
use std::ops::Range;
use taper_ops::rng::name_key;
use taper_ops::{
    AttentionShape, AttentionSpec, Products, VisibleKeys, composed, cross_attention,
    decoding_attention,
};

/// Attention from the decoder to the encoder's output. A single projection makes keys and values.
#[derive(Debug, Clone)]
pub(crate) struct CrossAttention {
    name: String,
    q: Linear,
    query_norm: QueryKeyNorms,
    kv: Linear,
    key_norm: QueryKeyNorms,
    out: Linear,
    shape: AttentionShape,
    dropout: f64,
    products: Products,
    site: u64,
}

impl CrossAttention {
    pub(crate) fn new(build: &mut Builder, name: &str, config: &ModelConfig) -> Result<Self> {
        let shape = config.attention_shape();
        let (query, key_value) = (Projection::query(config), Projection::key_value(config));
        let norms = |build: &mut Builder, normed, width| {
            QueryKeyNorms::new(build, name, config, &[normed], width)
        };
        build.count(PartCost::kept(shape.query_width() + shape.heads).with_heads(shape.heads));
        Ok(Self {
            q: query.build(build, &format!("{name}.q"))?,
            query_norm: norms(build, Normed::Query, query.width())?,
            // Keys and values are computed once for each token of the encoder.
            kv: build
                .in_stream(Stream::First, |build| key_value.build(build, &format!("{name}.kv")))?,
            key_norm: build
                .in_stream(Stream::First, |build| norms(build, Normed::Key, key_value.width()))?,
            out: Projection::result(config).build(build, &format!("{name}.out"))?,
            shape,
            dropout: config.attention_dropout,
            products: build.products,
            site: name_key(name),
            name: name.to_owned(),
        })
    }

    /// Computes keys and values from the encoder's output for M source tokens. D is the width of
    /// the model, and K is the width of the keys of all heads together.
    ///
    /// # Shapes
    /// `(M, D)` → `(M, 2·K)`.
    pub(crate) fn key_value(&self, encoded: &Tensor, pass: &Pass) -> Result<Tensor> {
        self.key_norm.forward(self.kv.forward(encoded, pass)?, pass)
    }

    /// Computes queries from the states of N target tokens: `(N, D)` → `(N, Q)`, where Q is the
    /// width of all query heads together.
    fn query(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        self.query_norm.forward(self.q.forward(x, pass)?, pass)
    }

    /// Attends from one new token of each of R targets that are decoded. Row `r` of `x (R, D)` is
    /// the new token of target `r`. It attends to the source tokens `rows[r]`, whose keys and
    /// values are these rows of `key_value (M, 2·K)`.
    pub(crate) fn step(
        &self,
        x: &Tensor,
        residual: Residual<'_>,
        key_value: &Tensor,
        rows: &[Range<usize>],
        pass: &Pass,
    ) -> Result<Tensor> {
        let query = self.query(x, pass)?;
        self.out.onto(
            &decoding_attention(&query, VisibleKeys::Source { key_value, rows }, self.shape)?,
            residual,
            pass,
        )
    }

    /// Attends from the rows of `x (N, D)` to the keys and values `(M, 2·K)` in `to`.
    pub(crate) fn attend(
        &self,
        x: &Tensor,
        residual: Residual<'_>,
        to: &Attended<'_>,
        pass: &Pass,
    ) -> Result<Tensor> {
        let Attended { key_value, query_lengths, key_lengths, guide } = *to;
        let query = self.query(x, pass)?;
        let spec = AttentionSpec {
            key_lengths: key_lengths.clone(),
            dropout: pass.dropout(self.dropout, self.site),
            products: self.products,
            ..AttentionSpec::new(self.shape, query_lengths.clone())
        };
        if let Some(guide) = guide {
            guide.add_loss(&query, key_value, &spec, pass)?;
        }
        if pass.records_attention(&self.name) {
            pass.record(
                &self.name,
                composed::attention_weights(
                    &query,
                    &key_value.narrow(1, 0, self.shape.key_value_width())?,
                    None,
                    &spec,
                )?,
            );
            pass.record_projections(|| {
                let width = self.shape.key_value_width();
                Ok(ProjectionRecord {
                    layer: self.name.clone(),
                    shape: self.shape,
                    queries: query.clone(),
                    keys: key_value.narrow(1, 0, width)?,
                    values: key_value.narrow(1, width, width)?,
                })
            })?;
        }
        let attended = cross_attention(pass.tape(), &query, key_value, None, &spec)?;
        self.out.onto(&pass.unmasked(&self.name, attended, self.shape.heads)?, residual, pass)
    }
}
