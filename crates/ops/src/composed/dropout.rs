//! Dropout in Candle's primitives.

use crate::spec::Dropout;
use candle_core::{Result, Tensor};

/// `x` times the mask of a dropout.
pub(super) fn drop(x: &Tensor, dropout: Dropout) -> Result<Tensor> {
    if !dropout.is_active() {
        return Ok(x.clone());
    }
    x.mul(&dropout.mask(x.elem_count(), x.dtype(), x.device())?.reshape(x.shape())?)
}
