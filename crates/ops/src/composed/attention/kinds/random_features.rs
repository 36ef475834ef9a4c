//! Random features of a softmax (Choromanski et al. 2021, "Rethinking Attention with Performers",
//! FAVOR+) in Candle's primitives.
//!
//! ```text
//! exp(q·k) = E[φ(q)·φ(k)],   φ(x) = exp(ωx − ‖x‖² / 2) / √m   for each of the m rows of ω
//! ```
//!
//! (lemma 1), with q and k divided by the fourth root of a head's width. Common factors of
//! numerator and denominator are left out: 1/√m; for each query the exponential of its largest
//! exponent; and for all keys of one head of one sequence the exponential of their largest.

use crate::composed::CountedProduct;
use candle_core::{D, Result, Tensor};

/// Number added to exponents of absent keys, whose `exp` is then 0 compared with any other.
const NOTHING: f64 = -1e30;

/// Computes `ωx − ‖x‖² / 2`: `(B, H, T, Dh)` and `(M, Dh)` → `(B, H, T, M)`.
fn exponents(x: &Tensor, omega: &Tensor) -> Result<Tensor> {
    let (batch, heads, longest, head) = x.dims4()?;
    let x = (x * (head as f64).powf(-0.25))?;
    let omega = omega.to_dtype(x.dtype())?.to_device(x.device())?.t()?.contiguous()?;
    let along = x.reshape((batch * heads * longest, head))?.times(&omega)?;
    let along = along.reshape((batch, heads, longest, omega.dim(1)?))?;
    along.broadcast_sub(&(x.sqr()?.sum_keepdim(D::Minus1)? * 0.5)?)
}

/// Computes φ of queries, up to a factor for each: `(B, H, T, Dh)` → `(B, H, T, M)`.
pub(super) fn query_features(x: &Tensor, omega: &Tensor) -> Result<Tensor> {
    let exponents = exponents(x, omega)?;
    let largest = exponents.max_keepdim(D::Minus1)?.detach();
    exponents.broadcast_sub(&largest)?.exp()
}

/// Computes φ of keys without a factor `exp(c)` for each head of a sequence, and c.
///
/// # Shapes
/// `x (B, H, T, Dh)`, `is_real (B, 1, T, 1)`, 1 or 0 → `(B, H, T, M)` and `(B, H)`. Keys that are
/// not real are zero.
pub(super) fn key_features(
    x: &Tensor,
    omega: &Tensor,
    is_real: &Tensor,
) -> Result<(Tensor, Tensor)> {
    let exponents = exponents(x, omega)?;
    if exponents.elem_count() == 0 {
        let (batch, heads, ..) = exponents.dims4()?;
        let nothing = Tensor::zeros((batch, heads), exponents.dtype(), exponents.device())?;
        return Ok((exponents, nothing));
    }
    let exponents = exponents.broadcast_add(&((1.0 - is_real)? * NOTHING)?)?;
    let largest = exponents.max_keepdim(D::Minus1)?.max_keepdim(D::Minus2)?.detach();
    let features = exponents.broadcast_sub(&largest)?.exp()?.broadcast_mul(is_real)?;
    Ok((features, largest.squeeze(3)?.squeeze(2)?))
}

/// Adds sums over the past and over new tokens, each without its factor `exp(c)`; the result is
/// without the larger factor.
///
/// # Shapes
/// `(R, H, M, Dh + 1)` and `(R, H)` for each of the two → the same shapes.
pub(super) fn together(
    (past, at): (&Tensor, &Tensor),
    (new, new_at): (&Tensor, &Tensor),
) -> Result<(Tensor, Tensor)> {
    // The largest feature of a past is 1, so its sum is zero only without tokens.
    let last = past.dim(3)? - 1;
    let is_empty = past.narrow(3, last, 1)?.sum((2, 3))?.eq(0.0)?.to_dtype(at.dtype())?;
    let at = (at + (is_empty * NOTHING)?)?;
    let larger = at.maximum(new_at)?;
    let scaled = |sums: &Tensor, at: &Tensor| {
        sums.broadcast_mul(&(at - &larger)?.exp()?.unsqueeze(2)?.unsqueeze(3)?)
    };
    Ok(((scaled(past, &at)? + scaled(new, new_at)?)?, larger))
}
