//! Addition in place, on devices that have it.

use candle_core::{Device, Result, Tensor};

/// Adds the second tensor to the first, both contiguous and f32, of the same length.
pub(crate) type AddInPlace = fn(&Tensor, &Tensor) -> Result<()>;

/// Addition in place on a device; `None` if it has none.
pub(crate) fn add_in_place(device: &Device) -> Option<AddInPlace> {
    #[cfg(feature = "cuda")]
    if device.is_cuda() {
        return Some(crate::cuda::addition::add_in_place);
    }
    let _ = device;
    None
}
