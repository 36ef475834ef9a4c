//! Matrix products by Candle, with a count of their multiplications and additions.

use candle_core::{D, Result, Tensor};

/// Matrix products by Candle whose multiplications and additions a [profile](crate::profile)
/// counts.
pub trait CountedProduct {
    /// Computes `self · other` over the last two dimensions.
    ///
    /// # Shapes
    /// `(…, M, K)` and `(…, K, N)` → `(…, M, N)`.
    ///
    /// # Errors
    /// If the shapes do not match.
    fn times(&self, other: &Tensor) -> Result<Tensor>;
}

impl CountedProduct for Tensor {
    // The only call of Candle's `matmul`; elsewhere `clippy.toml` forbids it.
    #[expect(clippy::disallowed_methods, reason = "counted here")]
    fn times(&self, other: &Tensor) -> Result<Tensor> {
        let product = self.matmul(other)?;
        crate::profile::count_product(self.elem_count(), 1, other.dim(D::Minus1)?);
        Ok(product)
    }
}
