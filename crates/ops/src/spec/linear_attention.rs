//! What linear attention computes.

use crate::products::Products;
use candle_core::{Result, Tensor, bail};
use std::sync::Arc;

/// What a layer of linear attention computes, beside its inputs.
#[derive(Debug, Clone)]
pub struct LinearAttentionSpec {
    /// Number of heads; the width is divided between them.
    pub heads: usize,
    /// Tokens of each sequence.
    pub lengths: Arc<[usize]>,
    /// Whether a token sees none after itself.
    pub causal: bool,
    /// How the operands of the products are rounded, forward and backward.
    pub products: Products,
}

/// The sizes of linear attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LinearAttentionShape {
    pub(crate) tokens: usize,
    /// Elements of a head.
    pub(crate) head: usize,
    /// Features of a head.
    pub(crate) features: usize,
}

impl LinearAttentionSpec {
    /// Refuses tensors that do not fit together.
    pub(crate) fn shape(
        &self,
        qkv: &Tensor,
        vectors: Option<&Tensor>,
    ) -> Result<LinearAttentionShape> {
        let (tokens, width) = qkv.dims2()?;
        let all: usize = self.lengths.iter().sum();
        if self.heads == 0 || !width.is_multiple_of(3 * self.heads) || all != tokens {
            bail!(
                "linear attention: projections {:?} of {} heads, {all} tokens in sequences",
                qkv.shape(),
                self.heads
            );
        }
        let head = width / 3 / self.heads;
        let features = match vectors {
            None => head,
            Some(vectors) => match vectors.dims2()? {
                (features, width) if features > 0 && width == head => features,
                other => bail!("linear attention: vectors {other:?} for heads of width {head}"),
            },
        };
        Ok(LinearAttentionShape { tokens, head, features })
    }

    /// Added to a denominator: features may underflow to 0. As the authors of linear attention do;
    /// the largest of random features is 1, and the square of this is not yet 0 in f32.
    pub(crate) const fn epsilon(is_random: bool) -> f64 {
        if is_random { 1e-18 } else { 1e-6 }
    }
}
