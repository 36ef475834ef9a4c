//! Random features that approximate a softmax (Choromanski et al. 2021, "Rethinking Attention with
//! Performers", FAVOR+), composed of Candle's operations.
//!
//! ```text
//! exp(q·k) = E[φ(q)·φ(k)],   φ(x) = exp(ωx − ‖x‖² / 2) / √m   for each of the m rows of ω
//! ```
//!
//! This is lemma 1 of the paper. Here, q and k are first divided by the fourth root of a head's
//! width. Factors that the numerator and the denominator of attention have in common are left out.
//! One is 1/√m. Another, for each query, is the exponential of its largest exponent. The third, for
//! all keys of a head in a sequence, is the exponential of their largest exponent.

use crate::composed::CountedProduct;
use candle_core::{D, Result, Tensor};

/// Number added to the exponents of keys that do not exist. It is so far below the exponents of
/// real keys that, after the largest exponent is subtracted, `exp` gives 0.
const NOTHING: f64 = -1e30;

/// Computes the exponents `ωx − ‖x‖² / 2`: `(B, H, T, Dh)` and `(M, Dh)` → `(B, H, T, M)`.
fn exponents(x: &Tensor, omega: &Tensor) -> Result<Tensor> {
    let (batch, heads, longest, head) = x.dims4()?;
    let x = (x * (head as f64).powf(-0.25))?;
    let omega = omega.to_dtype(x.dtype())?.to_device(x.device())?.t()?.contiguous()?;
    let along = x.reshape((batch * heads * longest, head))?.times(&omega)?;
    let along = along.reshape((batch, heads, longest, omega.dim(1)?))?;
    along.broadcast_sub(&(x.sqr()?.sum_keepdim(D::Minus1)? * 0.5)?)
}

/// Computes φ of queries, up to a positive factor for each query: `(B, H, T, Dh)` → `(B, H, T, M)`.
pub(super) fn query_features(x: &Tensor, omega: &Tensor) -> Result<Tensor> {
    let exponents = exponents(x, omega)?;
    let largest = exponents.max_keepdim(D::Minus1)?.detach();
    exponents.broadcast_sub(&largest)?.exp()
}

/// Computes φ of keys, divided by a factor `exp(c)` for each head of a sequence. Also returns c.
///
/// # Shapes
/// `x (B, H, T, Dh)`; `is_real (B, 1, T, 1)`, 1 for keys that exist and 0 for padding →
/// `(B, H, T, M)`, zero for padding, and `(B, H)`.
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

/// Adds the sums over past tokens to the sums over new tokens. Each of the two sums has been
/// divided by its own factor `exp(c)`. The result is divided by the larger factor, whose c is also
/// returned.
///
/// # Shapes
/// Sums `(R, H, M, Dh + 1)` and c `(R, H)`, for past and new tokens → the same shapes.
pub(super) fn together(
    (past, at): (&Tensor, &Tensor),
    (new, new_at): (&Tensor, &Tensor),
) -> Result<(Tensor, Tensor)> {
    // The largest feature of past keys is 1, so the sum of denominators is zero only if there are
    // no past tokens.
    let last = past.dim(3)? - 1;
    let is_empty = past.narrow(3, last, 1)?.sum((2, 3))?.eq(0.0)?.to_dtype(at.dtype())?;
    let at = (at + (is_empty * NOTHING)?)?;
    let larger = at.maximum(new_at)?;
    let scaled = |sums: &Tensor, at: &Tensor| {
        sums.broadcast_mul(&(at - &larger)?.exp()?.unsqueeze(2)?.unsqueeze(3)?)
    };
    Ok(((scaled(past, &at)? + scaled(new, new_at)?)?, larger))
}
