//! Conversion of activations to another type.

use crate::tape::{Slot, Tape};
use candle_core::{DType, Result, Tensor};

/// Converts `x` to the type `dtype`. Without a tape, Candle differentiates the conversion.
///
/// # Shapes
/// `x` → a tensor of the same shape.
///
/// # Errors
/// If the device has no memory left.
pub fn converted(tape: Option<&Tape>, x: &Tensor, dtype: DType) -> Result<Tensor> {
    if x.dtype() == dtype {
        return Ok(x.clone());
    }
    let Some(tape) = tape else { return x.to_dtype(dtype) };
    crate::device::check(x.device())?;
    let out = x.detach().to_dtype(dtype)?;
    let (slot, before) = (Slot::from(x), x.dtype());
    tape.record_tensors("conversion", &[x], &out, move |gradient, adjoints| {
        adjoints.give_tensor(slot, gradient.to_dtype(before)?)
    })?;
    Ok(out)
}
