//! Settings of the low-rank adapters of a linear layer.

use super::dropout::Dropout;
use crate::products::Products;
use candle_core::Tensor;

/// Matrices `A` and `B` that change a weight `W (O, I)` to `W + s · B A`.
#[derive(Debug, Clone)]
pub struct Factors {
    /// `A`, `(R, I)`.
    pub down: Tensor,
    /// `B`, `(O, R)`.
    pub up: Tensor,
}

/// Settings of low-rank adapters, apart from their parameters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LowRankSpec {
    /// Multiplier `s` of `B A`.
    pub scale: f64,
    /// Dropout on the input of the adapter, `(N, I)`. Its element `(n, i)` has index `n·I + i` in
    /// the mask.
    pub input_dropout: Dropout,
    /// Dropout on the output of the adapter, `(N, O)`, before `W x` is added. Its element `(n, o)`
    /// has index `n·O + o` in the mask.
    pub dropout: Dropout,
    /// Type to which the operands of matrix products are rounded, forward and backward.
    pub products: Products,
}
