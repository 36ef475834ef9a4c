//! Self-attention with its projections.

use super::projections::Projection;
use super::query_key_norm::{Normed, QueryKeyNorms};
use super::{LayerPast, Mechanism, PastRows, Site, Texts, Within, choose};
use crate::config::ModelConfig;
use crate::layers::attention::mixer::Mixer;
use crate::layers::linear::{Linear, Residual};
use crate::layers::positions::PreparedPositions;
use crate::pass::recorder::ProjectionRecord;
use crate::{Builder, Pass};
use candle_core::{Result, Tensor};
use std::sync::Arc;
use taper_ops::{AttentionShape, composed};

/// Self-attention: a single projection makes query, key and value.
#[derive(Debug, Clone)]
pub(crate) struct SelfAttention {
    name: String,
    qkv: Linear,
    norms: QueryKeyNorms,
    out: Linear,
    shape: AttentionShape,
    /// Number of vectors that `qkv` makes for each token: query, key and value, or only two if the
    /// query is also the key. The last vector is always the value.
    parts: usize,
    mechanism: Arc<dyn Mechanism>,
}

impl SelfAttention {
    pub(crate) fn new(
        build: &mut Builder,
        name: &str,
        config: &ModelConfig,
        (causal, layer): (bool, usize),
    ) -> Result<Self> {
        let site = Site { config, name, layer, causal, products: build.products };
        let parts = site.parts();
        let qkv = Projection::query_key_value(config, parts);
        let normed = [Normed::Query, Normed::Key];
        Ok(Self {
            qkv: qkv.build(build, &format!("{name}.qkv"))?,
            norms: QueryKeyNorms::new(build, name, config, &normed, qkv.width())?,
            out: Projection::result(config).build(build, &format!("{name}.out"))?,
            shape: config.attention_shape(),
            parts,
            mechanism: choose(build, &site)?,
            name: name.to_owned(),
        })
    }

    /// Projects to query, key and value; then normalises query and key if there are norms, and
    /// rotates them if positions are rotary. For N tokens: `(N, D)` → `(N, W)`, where W is the
    /// width of query, key and value together. The result is wider in two cases. In dual chunk
    /// attention, each query is rotated in three ways. If the mechanism remembers earlier segments
    /// (Transformer-XL), a second copy of key and value follows in training; no gradient reaches
    /// the layers below through this copy.
    fn project(&self, x: &Tensor, positions: &PreparedPositions, pass: &Pass) -> Result<Tensor> {
        let mut qkv = self.norms.forward(self.qkv.forward(x, pass)?, pass)?;
        if pass.is_training() && self.mechanism.remembers() {
            // Because `x` is detached here, the projection's weights get a gradient from the
            // memory, but the layers below do not.
            let seen_again = self.qkv.forward(&x.detach().copy()?, pass)?;
            qkv = composed::on_tape(pass.tape(), "memory", &[&qkv, &seen_again], |inputs| {
                let width = inputs[1].dim(1)? / 3;
                Tensor::cat(&[&inputs[0], &inputs[1].narrow(1, width, 2 * width)?], 1)
            })?; // (N, 5·D)
        }
        match &positions.rotary {
            Some(rotary) => rotary.rotate(&qkv, (self.shape, self.parts - 2), pass),
            None => Ok(qkv),
        }
    }

    /// Splits `qkv (N, W)` into the query, key and value of each token, for recording.
    fn projections(&self, qkv: &Tensor) -> Result<ProjectionRecord> {
        let (query, width) = (self.shape.query_width(), self.shape.key_value_width());
        // With two parts, the query is also the key. With three, the keys follow the query, which
        // has several rotations in dual chunk attention.
        let keys = if self.parts == 2 { 0 } else { qkv.dim(1)? - 2 * width };
        Ok(ProjectionRecord {
            layer: self.name.clone(),
            shape: self.shape,
            queries: qkv.narrow(1, 0, query)?,
            keys: qkv.narrow(1, keys, width)?,
            values: qkv.narrow(1, keys + width, width)?,
        })
    }
}

impl Mixer for SelfAttention {
    fn forward(&self, x: &Tensor, residual: Residual<'_>, within: Within<'_>) -> Result<Tensor> {
        let pass = within.pass;
        let qkv = self.project(x, within.positions, pass)?;
        if pass.records_attention(&self.name) {
            pass.record(&self.name, self.mechanism.weights(&qkv, within)?);
            pass.record_projections(|| self.projections(&qkv))?;
        }
        let attended = self.mechanism.attend(&qkv, within)?;
        self.out.onto(&pass.unmasked(&self.name, attended, self.shape.heads)?, residual, pass)
    }

    fn step(
        &self,
        x: &Tensor,
        residual: Residual<'_>,
        (past, rows): (&mut LayerPast, &PastRows<'_>),
        pass: &Pass,
    ) -> Result<Tensor> {
        let qkv = self.project(x, rows.positions, pass)?;
        self.out.onto(&self.mechanism.step(&qkv, past, rows)?, residual, pass)
    }

    fn read(
        &self,
        x: &Tensor,
        residual: Residual<'_>,
        (past, texts): (&mut LayerPast, &Texts<'_>),
        pass: &Pass,
    ) -> Result<Tensor> {
        let qkv = self.project(x, texts.positions, pass)?;
        self.out.onto(&self.mechanism.read(&qkv, past, texts)?, residual, pass)
    }

    fn remember(
        &self,
        x: &Tensor,
        (past, texts): (&mut LayerPast, &Texts<'_>),
        pass: &Pass,
    ) -> Result<()> {
        self.mechanism.remember(&self.project(x, texts.positions, pass)?, past, texts)
    }
}
