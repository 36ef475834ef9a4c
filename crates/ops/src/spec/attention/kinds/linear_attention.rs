//! Settings of linear attention.

use crate::products::Products;
use candle_core::{Result, Tensor, bail};
use std::sync::Arc;

/// Settings of a layer of linear attention, apart from its inputs.
#[derive(Debug, Clone)]
pub struct LinearAttentionSpec {
    /// Number of heads, among which the width is divided.
    pub heads: usize,
    /// Number of tokens of each sequence.
    pub lengths: Arc<[usize]>,
    /// Whether a token sees only itself and earlier tokens.
    pub causal: bool,
    /// Type to which the operands of matrix products are rounded, forward and backward.
    pub products: Products,
}

/// Sizes of the inputs of linear attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LinearAttentionShape {
    pub(crate) tokens: usize,
    /// Width of a head of queries, keys and values.
    pub(crate) head: usize,
    /// Number of features to which a head of a query or a key is mapped.
    pub(crate) features: usize,
}

impl LinearAttentionSpec {
    /// Checks that `qkv` and the `vectors` of random features, if any, have matching shapes, and
    /// returns the sizes.
    pub(crate) fn shape(
        &self,
        qkv: &Tensor,
        vectors: Option<&Tensor>,
    ) -> Result<LinearAttentionShape> {
        let (tokens, width) = qkv.dims2()?;
        let all: usize = self.lengths.iter().sum();
        if self.heads == 0 || !width.is_multiple_of(3 * self.heads) || all != tokens {
            bail!(
                "linear attention: shapes do not fit together: projections {:?} of {} heads, {all} \
                 tokens in sequences",
                qkv.shape(),
                self.heads
            );
        }
        let head = width / 3 / self.heads;
        let features = match vectors {
            None => head,
            Some(vectors) => match vectors.dims2()? {
                (features, width) if features > 0 && width == head => features,
                other => {
                    bail!("linear attention: vectors {other:?} do not fit heads of width {head}")
                }
            },
        };
        Ok(LinearAttentionShape { tokens, head, features })
    }

    /// Returns the number that is added to denominators, because features can underflow to 0.
    /// Without random features, it is the number that the authors of linear attention use. With
    /// random features, it can be smaller, because the largest feature is 1. But its square must
    /// not underflow in f32.
    pub(crate) const fn epsilon(is_random: bool) -> f64 {
        if is_random { 1e-18 } else { 1e-6 }
    }
}
