//! Settings of linear attention.

use crate::products::Products;
use candle_core::{Result, Tensor, bail};
use std::sync::Arc;

/// Settings of a layer of linear attention, apart from its inputs.
#[derive(Debug, Clone)]
pub struct LinearAttentionSpec {
    /// Number of heads; the width is divided among them.
    pub heads: usize,
    /// Number of tokens of each sequence.
    pub lengths: Arc<[usize]>,
    /// True if tokens see only themselves and earlier tokens.
    pub causal: bool,
    /// Rounding of the operands of the products, forward and backward.
    pub products: Products,
}

/// Sizes of linear attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LinearAttentionShape {
    pub(crate) tokens: usize,
    /// Width of a head.
    pub(crate) head: usize,
    /// Number of features of a head.
    pub(crate) features: usize,
}

impl LinearAttentionSpec {
    /// Checks that the shapes of tensors match.
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

    /// Number added to denominators, because features may underflow to 0. Without random features,
    /// it is the number that the authors of linear attention use. With them, the largest feature is
    /// 1, and the square of this number does not underflow in f32.
    pub(crate) const fn epsilon(is_random: bool) -> f64 {
        if is_random { 1e-18 } else { 1e-6 }
    }
}
