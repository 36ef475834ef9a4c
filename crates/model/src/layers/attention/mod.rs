//! Multi-head attention layers (Vaswani et al. 2017, section 3.2.2) with fused projections.
//!
//! The computation between the projections of self-attention is a [`Mechanism`]: a file in this
//! folder, which [`choose`] names. Like [`transformer_xl`], it may be written in plain Candle, on
//! the tape through [`composed::on_tape`](taper_ops::composed::on_tape).
//!
//! **Decision.** A mechanism sees packed projections and the past that its layer keeps. Only
//! Linformer and Transformer-XL have parameters of their own, so that weights trained with one kind
//! can be tried with another.

mod attended;
mod cross;
mod hierarchical;
mod linear;
mod linformer;
mod past;
mod performer;
mod projections;
mod query_key_norm;
mod reformer;
mod softmax;
#[cfg(test)]
mod tests;
mod transformer_xl;

pub(crate) use attended::{Attended, Within};
pub(crate) use cross::CrossAttention;
pub(crate) use past::{DecodedRows, LayerPast, PastRows, Texts};

use super::linear::{Linear, Residual};
use super::positions::PreparedPositions;
use super::state_space::StateSpaceMechanism;
use crate::config::{AttentionKind, ModelConfig};
use crate::cost::PartCost;
use crate::recorder::ProjectionRecord;
use crate::{Builder, ModelError, Pass};
use candle_core::{DType, Device, Result, Tensor};
use hierarchical::Hierarchical;
use linear::LinearAttention;
use linformer::Linformer;
use performer::RandomFeatures;
use projections::Projection;
use query_key_norm::{Normed, QueryKeyNorms};
use reformer::Reformer;
use softmax::Softmax;
use std::fmt::Debug;
use std::sync::Arc;
use taper_ops::{AttentionShape, Products, composed};
use transformer_xl::TransformerXl;

/// A layer of self-attention that is being built.
pub(crate) struct Site<'a> {
    pub(crate) config: &'a ModelConfig,
    /// Full name of the layer, such as `decoder.layers.0.self_attention`.
    pub(crate) name: &'a str,
    /// Number of the layer in the stack, from 0.
    pub(crate) layer: usize,
    /// Whether tokens see only themselves and those before.
    pub(crate) causal: bool,
    pub(crate) products: Products,
}

impl Site<'_> {
    fn kind(&self) -> AttentionKind {
        self.config.attention(self.causal).kind_of(self.layer)
    }

    /// Number of projections: three for query, key and value; two if queries are also the keys.
    fn parts(&self) -> usize {
        if self.kind() == AttentionKind::Reformer { 2 } else { 3 }
    }
}

/// A mechanism of self-attention: the computation between the projections.
///
/// `qkv (N, W)` has query, key and value of each token side by side, as an [`AttentionShape`] says;
/// the result is as wide as the queries, `(N, Q)`. With two projections, `qkv` has the query, which
/// is also the key, and the value. With rotary positions, queries and keys are rotated already, and
/// with dual chunk attention `qkv` begins with all rotations of the query.
pub(crate) trait Mechanism: Debug + Send + Sync {
    /// Whether tokens are also seen as a memory, without a gradient to the states below: then `qkv`
    /// has a second key and value after the others.
    fn remembers(&self) -> bool {
        false
    }

    /// Attends within whole sequences.
    ///
    /// # Shapes
    /// `qkv (N, W)` → `(N, Q)`.
    fn attend(&self, qkv: &Tensor, within: Within<'_>) -> Result<Tensor>;

    /// Multiplications and additions of the products of [`attend`](Self::attend) on one sequence of
    /// this length; `width` is that of all heads together.
    fn flops(&self, width: usize, length: usize) -> f64;

    /// Scalars that [`attend`](Self::attend) keeps for the backward pass of one sequence of this
    /// length, beside `qkv`: in plain Candle, every intermediate result, and a copy of `qkv`. In
    /// f32, on a CPU.
    fn kept(&self, width: usize, length: usize) -> f64;

    /// Cost for a token of a sequence of the usual length, beside that of parameters.
    fn cost(&self, width: usize) -> PartCost {
        PartCost::per_token(|length| (self.flops(width, length), self.kept(width, length)))
    }

    /// Computes the weight of each key for each query, for attention maps.
    ///
    /// # Shapes
    /// `qkv (N, W)` → `(B, H, T, T)`.
    fn weights(&self, qkv: &Tensor, within: Within<'_>) -> Result<Tensor>;

    /// Attends from one new token in each row, like [`attend`](Self::attend) after the tokens
    /// before it. Records the token in `past`.
    ///
    /// # Shapes
    /// `qkv (R, W)` → `(R, Q)`.
    fn step(&self, qkv: &Tensor, past: &mut LayerPast, rows: &PastRows<'_>) -> Result<Tensor>;

    /// Attends within whole texts at once, like [`step`](Self::step) token by token. Records them
    /// in `past`.
    ///
    /// # Shapes
    /// `qkv (N, W)` → `(N, Q)`.
    fn read(&self, qkv: &Tensor, past: &mut LayerPast, texts: &Texts<'_>) -> Result<Tensor>;
}

/// Chooses the mechanism that the recipe names for this layer, and counts its cost.
fn choose(build: &mut Builder, site: &Site<'_>) -> Result<Arc<dyn Mechanism>> {
    let mechanism: Arc<dyn Mechanism> = match site.kind() {
        AttentionKind::Full | AttentionKind::Sparse => Arc::new(Softmax::new(site)),
        AttentionKind::Linear => Arc::new(linear(site)),
        AttentionKind::Performer => Arc::new(performer(site)),
        AttentionKind::Linformer => Arc::new(Linformer::new(build, site)?),
        AttentionKind::Reformer => Arc::new(Reformer::new(site)),
        AttentionKind::Hierarchical => Arc::new(Hierarchical::new(site)),
        AttentionKind::TransformerXl => Arc::new(TransformerXl::new(build, site)?),
        kind @ (AttentionKind::Mamba | AttentionKind::S4d) => {
            candle_core::bail!("{} is no kind of attention, but a layer", kind.name())
        }
    };
    build.count(mechanism.cost(site.config.d_model));
    Ok(mechanism)
}

fn linear(site: &Site<'_>) -> LinearAttention {
    LinearAttention::new(site.config.heads, site.causal, site.products)
}

fn performer(site: &Site<'_>) -> LinearAttention {
    let features = RandomFeatures::new(site);
    LinearAttention::performer(site.config.heads, site.causal, site.products, features)
}

/// Self-attention of the kind that a recipe names, or the state-space layer in its place, without
/// the projections before and after: for measurements.
#[derive(Debug, Clone)]
pub struct UnprojectedAttention {
    kind: Unprojected,
    width: usize,
}

#[derive(Debug, Clone)]
enum Unprojected {
    /// The mechanism, and the width of its inputs.
    Attention(Arc<dyn Mechanism>, usize),
    StateSpace(StateSpaceMechanism),
}

impl UnprojectedAttention {
    /// Makes the attention of a layer, counted from 0, of the decoder if `causal` and otherwise of
    /// the encoder; products are in f32.
    ///
    /// # Errors
    /// If the configuration is impossible.
    pub fn new(
        config: &ModelConfig,
        causal: bool,
        layer: usize,
    ) -> std::result::Result<Self, ModelError> {
        config.require_transformer()?;
        config.validate_blocks()?;
        let stack = if causal { "decoder" } else { "encoder" };
        let kind = config.attention(causal).kind_of(layer);
        let name = &format!("{stack}.layers.{layer}.{}", kind.sublayer());
        let mut builder = Builder::seeded(1, &Device::Cpu, DType::F32).with_biases(false);
        let build = &mut builder;
        let kind = if kind.is_state_space() {
            Unprojected::StateSpace(StateSpaceMechanism::new(build, name, config, (causal, layer))?)
        } else {
            let site = Site { config, name, layer, causal, products: build.products };
            let inputs = Projection::query_key_value(config, site.parts()).width();
            Unprojected::Attention(choose(build, &site)?, inputs)
        };
        Ok(Self { kind, width: config.d_model })
    }

    /// Width of a row of the inputs of [`attend`](Self::attend): query, key and value side by side,
    /// or the input and the gate of a state-space layer.
    #[must_use]
    pub fn input_width(&self) -> usize {
        match &self.kind {
            Unprojected::Attention(_, inputs) => *inputs,
            Unprojected::StateSpace(mechanism) => mechanism.input_width(),
        }
    }

    /// Attends within whole sequences of these lengths.
    ///
    /// # Shapes
    /// `inputs (N, W)`, W being the [`input_width`](Self::input_width) → `(N, D)`, or `(N, E)` for E
    /// channels of a state-space layer.
    ///
    /// # Errors
    /// If the lengths do not sum to `N`.
    pub fn attend(
        &self,
        inputs: &Tensor,
        lengths: &Arc<[usize]>,
        pass: &Pass,
    ) -> std::result::Result<Tensor, ModelError> {
        Ok(match &self.kind {
            Unprojected::Attention(mechanism, _) => {
                let positions = &PreparedPositions::default();
                mechanism.attend(inputs, Within { lengths, positions, pass })?
            }
            Unprojected::StateSpace(mechanism) => mechanism.run(inputs, lengths, pass)?,
        })
    }

    /// Bytes that [`attend`](Self::attend) keeps for the backward pass of one sequence of this
    /// length, by formula: beside its input, in f32, on a CPU. For a Reformer, they assume tokens
    /// with normally distributed queries.
    #[must_use]
    pub fn kept_bytes(&self, length: usize) -> f64 {
        let kept = match &self.kind {
            Unprojected::Attention(mechanism, _) => mechanism.kept(self.width, length),
            Unprojected::StateSpace(mechanism) => mechanism.kept(length),
        };
        size_of::<f32>() as f64 * kept
    }

    /// Multiplications and additions of the products of [`attend`](Self::attend) on one sequence of
    /// this length, by formula, as a CPU computes them: tiles and chunks count whole, a Reformer
    /// has tokens with normally distributed queries, and state-space layers include their scans.
    /// The backward pass takes five products for the two of a softmax, and otherwise two for each
    /// one.
    #[must_use]
    pub fn forward_flops(&self, length: usize) -> f64 {
        match &self.kind {
            Unprojected::Attention(mechanism, _) => mechanism.flops(self.width, length),
            Unprojected::StateSpace(mechanism) => mechanism.flops(length),
        }
    }
}

/// Self-attention: one projection makes query, key and value.
#[derive(Debug, Clone)]
pub(crate) struct SelfAttention {
    name: String,
    qkv: Linear,
    norms: QueryKeyNorms,
    out: Linear,
    shape: AttentionShape,
    /// Number of projections in `qkv`; the last is the value's.
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

    /// Projects, normalises query and key if they have norms, and rotates them if positions are
    /// rotary: `(N, D)` → `(N, W)`, or wider with queries in several rotations.
    fn project(&self, x: &Tensor, positions: &PreparedPositions, pass: &Pass) -> Result<Tensor> {
        let mut qkv = self.norms.forward(self.qkv.forward(x, pass)?, pass)?;
        if pass.is_training() && self.mechanism.remembers() {
            // The projection's weights get their gradient, and the layers below do not.
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

    /// Query, key and value of each token, apart: from `qkv (N, W)`.
    fn projections(&self, qkv: &Tensor) -> Result<ProjectionRecord> {
        let (query, width) = (self.shape.query_width(), self.shape.key_value_width());
        // With two projections, the query is also the key; otherwise keys follow all rotations of
        // the query.
        let keys = if self.parts == 2 { 0 } else { qkv.dim(1)? - 2 * width };
        Ok(ProjectionRecord {
            layer: self.name.clone(),
            shape: self.shape,
            queries: qkv.narrow(1, 0, query)?,
            keys: qkv.narrow(1, keys, width)?,
            values: qkv.narrow(1, keys + width, width)?,
        })
    }

    /// Attends, and adds the result to the residual: `(N, D)` → `(N, D)`.
    pub(crate) fn forward(
        &self,
        x: &Tensor,
        residual: Residual<'_>,
        within: Within<'_>,
    ) -> Result<Tensor> {
        let pass = within.pass;
        let qkv = self.project(x, within.positions, pass)?;
        if pass.records_attention(&self.name) {
            pass.record(&self.name, self.mechanism.weights(&qkv, within)?);
            pass.record_projections(|| self.projections(&qkv))?;
        }
        let attended = self.mechanism.attend(&qkv, within)?;
        self.out.onto(&pass.unmasked(&self.name, attended, self.shape.heads)?, residual, pass)
    }

    /// Attends from one new token in each row to itself and the tokens before it; the history
    /// counts the new token already: `(R, D)` → `(R, D)`.
    pub(crate) fn step(
        &self,
        x: &Tensor,
        residual: Residual<'_>,
        (past, rows): (&mut LayerPast, &PastRows<'_>),
        pass: &Pass,
    ) -> Result<Tensor> {
        let qkv = self.project(x, rows.positions, pass)?;
        self.out.onto(&self.mechanism.step(&qkv, past, rows)?, residual, pass)
    }

    /// Attends within whole texts at once, like [`SelfAttention::step`] token by token: `(N, D)` →
    /// `(N, D)`.
    pub(crate) fn read(
        &self,
        x: &Tensor,
        residual: Residual<'_>,
        (past, texts): (&mut LayerPast, &Texts<'_>),
        pass: &Pass,
    ) -> Result<Tensor> {
        let qkv = self.project(x, texts.positions, pass)?;
        self.out.onto(&self.mechanism.read(&qkv, past, texts)?, residual, pass)
    }
}
