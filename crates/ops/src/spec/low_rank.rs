//! Settings of the low-rank adapters of a linear layer.

use super::dropout::Dropout;
use crate::products::Products;
use candle_core::Tensor;

/// Factors of the change of a matrix `W (O, I)`, which becomes `W + s · B A`.
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
    /// Factor of the change, `s`.
    pub scale: f64,
    /// Dropout of the input of the factors. Element `(n, i)` has number `n·I + i` in the mask.
    pub input_dropout: Dropout,
    /// Dropout of the change. Element `(n, o)` has number `n·O + o` in the mask.
    pub dropout: Dropout,
    /// Rounding of the operands of the products, forward and backward.
    pub products: Products,
}
