//! Linear attention (Katharopoulos et al. 2020, "Transformers are RNNs", section 3). [`taper_ops`]
//! computes it as one fused operation, in place of several of Candle's. With random features in
//! place of elu(x) + 1, it is the attention of a Performer ([`super::performer`]).
//!
//! ```text
//! O_i = φ(q_i)ᵀ Σ_j φ(k_j) v_jᵀ / (φ(q_i)ᵀ Σ_j φ(k_j) + ε),   φ(x) = elu(x) + 1
//! ```
//!
//! The sums are over all tokens j of the sequence, or over j ≤ i under a causal mask (equations 5,
//! 7, 9 and 12). φ is positive, so the weight of each key is positive too. No score of a single
//! pair is computed, so time and memory grow only linearly with the length. Queries and keys are
//! not divided by the root of their width, because φ is applied to each of them alone, not to their
//! product.
//!
//! From one token to the next, decoding keeps only the sums `Σ φ(k) (v, 1)ᵀ`, where `(v, 1)` is the
//! value with a 1 appended. For each head, they have the shape `(M, Dh + 1)`, where M is the number
//! of features and Dh the width of a head.

use super::performer::RandomFeatures;
use crate::Pass;
use crate::layers::attention::{LayerPast, Mechanism, PastRows, Texts, Within};
use candle_core::{Result, Tensor};
use std::sync::Arc;
use taper_ops::{
    LinearAttentionSpec, Products, composed, kept_by_linear_attention, linear_attention,
    linear_attention_after, linear_attention_arithmetic,
};

#[derive(Debug)]
pub(super) struct LinearAttention {
    heads: usize,
    causal: bool,
    products: Products,
    features: Features,
}

/// The feature map φ.
#[derive(Debug)]
enum Features {
    /// `elu(x) + 1`, which has as many features as a head is wide.
    Elu,
    Random(RandomFeatures),
}

impl LinearAttention {
    pub(super) fn new(heads: usize, causal: bool, products: Products) -> Self {
        Self { heads, causal, products, features: Features::Elu }
    }

    pub(super) fn performer(
        heads: usize,
        causal: bool,
        products: Products,
        features: RandomFeatures,
    ) -> Self {
        Self { heads, causal, products, features: Features::Random(features) }
    }

    pub(super) fn spec(&self, lengths: &Arc<[usize]>) -> LinearAttentionSpec {
        LinearAttentionSpec {
            heads: self.heads,
            lengths: lengths.clone(),
            causal: self.causal,
            products: self.products,
        }
    }

    /// Number of random features of a head; `None` if the features are `elu(x) + 1`.
    fn count(&self) -> Option<usize> {
        match &self.features {
            Features::Elu => None,
            Features::Random(features) => Some(features.count()),
        }
    }

    /// Returns the vectors ω that define random features outside of training; `None` if the
    /// features are `elu(x) + 1`.
    pub(super) fn own_vectors(&self) -> Result<Option<Tensor>> {
        match &self.features {
            Features::Elu => Ok(None),
            Features::Random(features) => Ok(Some(features.fixed()?)),
        }
    }

    /// Returns the vectors ω that define random features in `pass`; `None` if the features are
    /// `elu(x) + 1`.
    fn vectors_of_pass(&self, pass: &Pass) -> Result<Option<Tensor>> {
        match &self.features {
            Features::Elu => Ok(None),
            Features::Random(features) => Ok(Some(features.of_pass(pass)?)),
        }
    }
}

impl Mechanism for LinearAttention {
    fn attend(&self, qkv: &Tensor, within: Within<'_>) -> Result<Tensor> {
        let Within { lengths, pass, .. } = within;
        let vectors = self.vectors_of_pass(pass)?;
        linear_attention(pass.tape(), qkv, vectors.as_ref(), &self.spec(lengths))
    }

    fn flops(&self, width: usize, length: usize) -> f64 {
        linear_attention_arithmetic(&self.spec(&[length].into()), width, self.count())
    }

    fn kept(&self, width: usize, length: usize) -> f64 {
        kept_by_linear_attention(&self.spec(&[length].into()), width, self.count()) as f64
    }

    fn weights(&self, qkv: &Tensor, within: Within<'_>) -> Result<Tensor> {
        let Within { lengths, pass, .. } = within;
        let vectors = self.vectors_of_pass(pass)?;
        composed::linear_attention_weights(qkv, vectors.as_ref(), &self.spec(lengths))
    }

    fn step(&self, qkv: &Tensor, past: &mut LayerPast, _: &PastRows<'_>) -> Result<Tensor> {
        let vectors = self.own_vectors()?;
        let running = past.running.as_ref();
        let (out, running) =
            composed::linear_attention_step(qkv, vectors.as_ref(), self.heads, running)?;
        past.running = Some(running);
        Ok(out)
    }

    fn read(&self, qkv: &Tensor, past: &mut LayerPast, texts: &Texts<'_>) -> Result<Tensor> {
        let (vectors, spec) = (self.own_vectors()?, self.spec(&texts.lengths.into()));
        let (out, running) = linear_attention_after(qkv, vectors.as_ref(), &spec)?;
        past.put_running(running, texts.rows, texts.count)?;
        Ok(out)
    }
}
