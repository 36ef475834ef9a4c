//! Addition in place.

use super::launch::{address_of, launch, walking_in_pieces};
use candle_core::{DType, Result, Tensor, bail};

/// Adds `x` to `sum`; see [`crate::device::AddInPlace`].
///
/// # Errors
/// If the lengths or types differ, or the kernel cannot be queued.
pub(crate) fn add_in_place(sum: &Tensor, x: &Tensor) -> Result<()> {
    let (x, count) = (x.contiguous()?, sum.elem_count());
    if x.elem_count() != count || [x.dtype(), sum.dtype()] != [DType::F32; 2] {
        bail!(
            "a gradient of {:?} does not fit a sum of {count} numbers in {:?}: both must be f32 \
             and of one size",
            x.shape(),
            sum.dtype()
        );
    }
    let arguments = [address_of(&x)?.into(), address_of(sum)?.into(), (count as u64).into()];
    let grid = walking_in_pieces(count, DType::F32);
    // SAFETY: both tensors have `count` elements.
    unsafe { launch(sum.device().as_cuda_device()?, "add_to", grid, &arguments) }
}
