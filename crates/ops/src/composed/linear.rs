//! Linear layers, normalisation and activations, composed of Candle's operations.

use super::dropout::drop;
use super::{CountedProduct, wide, wide_type};
use crate::spec::{
    Activation, CUBE, Dropout, Factors, LinearSpec, LowRankSpec, NormSpec, NormedColumns, QUICK,
    TWICE_ROOT,
};
use candle_core::{D, Result, Tensor};

/// Computes `x · weightᵀ` in the type of `x`.
fn product(x: &Tensor, weight: &Tensor) -> Result<Tensor> {
    x.times(&weight.to_dtype(x.dtype())?.t()?)
}

/// Computes layer norm or RMS norm; see [`crate::norm()`]. Statistics are computed in f32 or wider.
///
/// # Shapes
/// `x (…, D)`, `weight (D,)`, `bias (D,)` → the shape of `x`.
///
/// # Errors
/// If the widths differ.
pub fn norm(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>, spec: &NormSpec) -> Result<Tensor> {
    let (values, wide) = (wide(x)?, wide_type(x.dtype()));
    let centred = match spec.is_centred {
        true => values.broadcast_sub(&values.mean_keepdim(D::Minus1)?)?,
        false => values,
    };
    let variance = centred.sqr()?.mean_keepdim(D::Minus1)?;
    let normal = centred.broadcast_div(&(variance + spec.epsilon)?.sqrt()?)?;
    let scaled = normal.broadcast_mul(&weight.to_dtype(wide)?)?;
    let shifted = match bias {
        Some(bias) => scaled.broadcast_add(&bias.to_dtype(wide)?)?,
        None => scaled,
    };
    shifted.to_dtype(x.dtype())
}

/// Normalises groups of columns; see [`crate::norm_columns()`].
///
/// # Shapes
/// The shapes of [`crate::norm_columns()`].
///
/// # Errors
/// The errors of [`crate::norm_columns()`].
pub fn norm_columns(x: &Tensor, parts: &[NormedColumns<'_>], spec: &NormSpec) -> Result<Tensor> {
    let (rows, width) = x.dims2()?;
    let (mut first, mut all) = (0, Vec::with_capacity(parts.len() + 1));
    for &NormedColumns { columns, weight, bias } in parts {
        let group = weight.elem_count();
        let groups = x.narrow(1, first, columns)?.contiguous()?;
        let groups = groups.reshape((rows * (columns / group), group))?;
        all.push(norm(&groups, weight, bias, spec)?.reshape((rows, columns))?);
        first += columns;
    }
    if first < width {
        all.push(x.narrow(1, first, width - first)?);
    }
    Tensor::cat(&all, 1)
}

/// Computes a linear layer; see [`crate::linear()`]. Everything after the product is computed in
/// f32 or wider.
///
/// # Shapes
/// The shapes of [`crate::linear()`].
///
/// # Errors
/// If the widths differ.
pub fn linear(
    x: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    residual: Option<&Tensor>,
    spec: &LinearSpec,
) -> Result<Tensor> {
    let product = product(x, weight)?;
    let is_identity = spec.activation == Activation::Identity && !spec.dropout.is_active();
    if is_identity && bias.is_none() && residual.is_none() {
        return Ok(product);
    }
    let mut out = wide(&product)?;
    if let Some(bias) = bias {
        out = out.broadcast_add(&bias.to_dtype(out.dtype())?)?;
    }
    let out = activated(out, spec.activation)?;
    let mut out = drop(&out, spec.dropout)?;
    if let Some(residual) = residual {
        out = (wide(residual)? + out)?;
    }
    out.to_dtype(x.dtype())
}

/// Adds the output of low-rank adapters; see [`crate::low_rank()`].
///
/// # Shapes
/// The shapes of [`crate::low_rank()`].
///
/// # Errors
/// If the widths differ.
pub fn low_rank(
    x: &Tensor,
    base: &Tensor,
    factors: &[Factors],
    spec: &LowRankSpec,
) -> Result<Tensor> {
    let x = match spec.input_dropout.is_active() {
        true => drop(&wide(x)?, spec.input_dropout)?.to_dtype(x.dtype())?,
        false => x.clone(),
    };
    let change = |one: &Factors| product(&product(&x, &one.down)?, &one.up);
    let changes = factors.iter().map(change).collect::<Result<Vec<_>>>()?;
    let change = drop(&(wide(&Tensor::cat(&changes, 1)?)? * spec.scale)?, spec.dropout)?;
    (wide(base)? + change)?.to_dtype(base.dtype())
}

/// Applies a nonlinearity and dropout; see [`crate::activation()`].
///
/// # Shapes
/// The shapes of [`crate::activation()`].
///
/// # Errors
/// If the device has no memory left.
pub fn activation(x: &Tensor, activation: Activation, dropout: Dropout) -> Result<Tensor> {
    drop(&activated(wide(x)?, activation)?, dropout)?.to_dtype(x.dtype())
}

/// Applies a nonlinearity to each element.
pub(super) fn activated(x: Tensor, activation: Activation) -> Result<Tensor> {
    match activation {
        Activation::Identity => Ok(x),
        // Candle's relu has derivative 1 at 0. Here, `x` is multiplied by a step function that has
        // no gradient. So the derivative at 0 is 0, as in PyTorch.
        Activation::Relu => x.mul(&x.detach().gt(0.0)?.to_dtype(x.dtype())?),
        // Composed with Candle's `erf`, because Candle's `gelu_erf` rounds a constant of its
        // derivative to six digits.
        Activation::Gelu => (&x * 0.5)? * ((&x * std::f64::consts::FRAC_1_SQRT_2)?.erf()? + 1.0)?,
        Activation::GeluTanh => {
            let inner = ((&x + (x.sqr()?.mul(&x)? * CUBE)?)? * (TWICE_ROOT / 2.0))?;
            (&x * 0.5)? * (inner.tanh()? + 1.0)?
        }
        Activation::Swish => x.silu(),
        Activation::QuickGelu => (&x * QUICK)?.silu()? / QUICK,
        Activation::Tanh => x.tanh(),
        Activation::Sigmoid => (x.neg()?.exp()? + 1.0)?.recip(),
    }
}
