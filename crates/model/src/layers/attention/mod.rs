//! Multi-head attention layers (Vaswani et al. 2017, section 3.2.2). Their projections are fused:
//! several matrices are multiplied at once.
//!
//! The computation between the projections of self-attention is a [`Mechanism`]: either the softmax
//! over keys (module [`softmax`]), or a mechanism of module [`kinds`], which needs the cargo
//! feature `kinds`. A mechanism can be written in plain Candle, for example that of the
//! Transformer-XL. Then [`composed::on_tape`](taper_ops::composed::on_tape) puts it on the tape
//! (the record of operations for the backward pass).
//!
//! **Decision.** A mechanism gets projections in which all sequences follow each other (packed),
//! and the past that its layer keeps. Only Linformer and Transformer-XL have parameters in their
//! mechanism. Weights trained with one kind of attention can therefore be tried with most other
//! kinds.

mod attended;
mod cross;
#[cfg(feature = "kinds")]
mod kinds;
#[cfg(not(feature = "kinds"))]
#[path = "missing_kinds.rs"]
mod kinds;
mod mixer;
mod past;
mod projections;
mod query_key_norm;
mod self_attention;
mod softmax;
mod unprojected;

pub(crate) use attended::{Attended, Within};
pub(crate) use cross::CrossAttention;
pub(crate) use mixer::Mixer;
pub(crate) use past::{DecodedRows, LayerPast, PastRows, Texts};
pub use unprojected::UnprojectedAttention;

use crate::Builder;
use crate::config::{AttentionKind, ModelConfig};
use crate::cost::PartCost;
use candle_core::{Result, Tensor};
use self_attention::SelfAttention;
use softmax::Softmax;
use std::fmt::Debug;
use std::sync::Arc;
use taper_ops::Products;

/// Description of a layer of self-attention that is being built.
pub(crate) struct Site<'a> {
    pub(crate) config: &'a ModelConfig,
    /// Full name of the layer, such as `decoder.layers.0.self_attention`.
    pub(crate) name: &'a str,
    /// Index of the layer in its stack, from 0.
    pub(crate) layer: usize,
    /// True if a token sees only itself and the tokens before it.
    pub(crate) causal: bool,
    pub(crate) products: Products,
}

impl Site<'_> {
    fn kind(&self) -> AttentionKind {
        self.config.attention(self.causal).kind_of(self.layer)
    }

    /// Number of vectors that a token is projected to: three for query, key and value; two if the
    /// query is also the key.
    fn parts(&self) -> usize {
        if self.kind() == AttentionKind::Reformer { 2 } else { 3 }
    }
}

/// A mechanism of self-attention: the computation between the projections.
///
/// A row of `qkv (N, W)` has query, key and value of one of N tokens side by side, in the widths of
/// an [`AttentionShape`]; W is the sum of these widths. The result `(N, Q)` is as wide as all
/// queries together. If one vector is both query and key, a row has this vector and the value. With
/// rotary positions, queries and keys are rotated already. With dual chunk attention (rotary
/// positions that restart in each chunk of tokens), a row begins with all rotations of the query.
pub(crate) trait Mechanism: Debug + Send + Sync {
    /// Whether each token has a second key and value, which later tokens see as memory. No gradient
    /// flows through them to the layers below. They are at the end of a row of `qkv`.
    fn remembers(&self) -> bool {
        false
    }

    /// Attends within whole sequences.
    ///
    /// # Shapes
    /// `qkv (N, W)` → `(N, Q)`.
    fn attend(&self, qkv: &Tensor, within: Within<'_>) -> Result<Tensor>;

    /// Number of multiplications and additions in the products of [`attend`](Self::attend) on one
    /// sequence of this length; `width` is the width of all heads together.
    fn flops(&self, width: usize, length: usize) -> f64;

    /// Number of f32 scalars that [`attend`](Self::attend) keeps on a CPU for the backward pass of
    /// one sequence of this length, not counting `qkv` itself. A mechanism in plain Candle keeps
    /// every intermediate result, and a copy of `qkv`.
    fn kept(&self, width: usize, length: usize) -> f64;

    /// Cost per token in a sequence of the length that [`PartCost::per_token`] assumes, without the
    /// cost of parameters.
    fn cost(&self, width: usize) -> PartCost {
        PartCost::per_token(|length| (self.flops(width, length), self.kept(width, length)))
    }

    /// Computes the weight of each key for each query, for attention maps.
    ///
    /// # Shapes
    /// `qkv (N, W)` → `(B, H, T, T)`, for B sequences, H heads, and T tokens in the longest
    /// sequence.
    fn weights(&self, qkv: &Tensor, within: Within<'_>) -> Result<Tensor>;

    /// Attends from one new token in each of R rows (texts that are decoded), and records the token
    /// in `past`. The result is what [`attend`](Self::attend) would return for this token if it got
    /// the whole row so far.
    ///
    /// # Shapes
    /// `qkv (R, W)` → `(R, Q)`.
    fn step(&self, qkv: &Tensor, past: &mut LayerPast, rows: &PastRows<'_>) -> Result<Tensor>;

    /// Attends within whole texts at once, and records the texts in `past`. The result is the same
    /// as that of calling [`step`](Self::step) for each token.
    ///
    /// # Shapes
    /// `qkv (N, W)` → `(N, Q)`.
    fn read(&self, qkv: &Tensor, past: &mut LayerPast, texts: &Texts<'_>) -> Result<Tensor>;

    /// Records whole texts in `past` as [`read`](Self::read) does, for a layer whose result is not
    /// used.
    fn remember(&self, qkv: &Tensor, past: &mut LayerPast, texts: &Texts<'_>) -> Result<()> {
        self.read(qkv, past, texts).map(drop)
    }
}

/// Makes the first sublayer of a layer: self-attention or a state-space layer. `at` says whether
/// the stack is causal, and gives the layer's index from 0.
pub(crate) fn mixer(
    build: &mut Builder,
    name: &str,
    config: &ModelConfig,
    at: (bool, usize),
) -> Result<Arc<dyn Mixer>> {
    match config.attention(at.0).kind_of(at.1).is_state_space() {
        true => kinds::state_space(build, name, config, at),
        false => Ok(Arc::new(SelfAttention::new(build, name, config, at)?)),
    }
}

/// Makes the mechanism of the kind that is configured for this layer, and counts its cost.
fn choose(build: &mut Builder, site: &Site<'_>) -> Result<Arc<dyn Mechanism>> {
    let mechanism = match site.kind() {
        AttentionKind::Full | AttentionKind::Sparse => Arc::new(Softmax::new(site)),
        kind => kinds::mechanism(build, site, kind)?,
    };
    build.count(mechanism.cost(site.config.d_model));
    Ok(mechanism)
}
