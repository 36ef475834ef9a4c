//! Addition in place, on devices that support it.

use candle_core::{Device, Result, Tensor};

/// Function that adds the second tensor to the first in place; both are contiguous, f32, and of the
/// same length.
pub(crate) type AddInPlace = fn(&Tensor, &Tensor) -> Result<()>;

/// Returns the addition in place for a device; `None` if the device has none.
pub(crate) fn add_in_place(device: &Device) -> Option<AddInPlace> {
    #[cfg(feature = "cuda")]
    if device.is_cuda() {
        return Some(crate::cuda::addition::add_in_place);
    }
    let _ = device;
    None
}
