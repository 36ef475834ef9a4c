//! Our own kernels, by device, and their times on the shapes of training, with the number of bytes
//! that they move.

use candle_core::{Device, Result, Tensor, bail};

use super::{KernelSizes, KernelTime};
use crate::kernels::Kernels;

/// A device without kernels.
struct Composed;

impl Kernels for Composed {}

/// Kernels of a device.
pub(crate) fn kernels_of(device: &Device) -> &'static dyn Kernels {
    #[cfg(feature = "cuda")]
    if device.is_cuda() {
        return &crate::cuda::Cuda;
    }
    let _ = device;
    &Composed
}

/// Kernels for an operation on these inputs, with or without a tape; `None` if Candle
/// differentiates the operation, because it cannot differentiate a kernel.
///
/// # Errors
/// If the calling thread may not use their device.
pub(crate) fn kernels(is_taped: bool, inputs: &[&Tensor]) -> Result<&'static dyn Kernels> {
    inputs.iter().try_for_each(|x| super::check(x.device()))?;
    let is_tracked = !is_taped && inputs.iter().any(|x| x.track_op());
    Ok(match inputs.first().filter(|_| !is_tracked) {
        Some(first) => kernels_of(first.device()),
        None => &Composed,
    })
}

/// Measures each kernel on a CUDA device. The first is a copy of 256 MiB, whose bandwidth is the
/// measure for the others. Each kernel runs in `repeats` series; the fastest counts.
///
/// # Errors
/// On another device, if the sizes do not fit together, or if the device has no memory left.
pub fn kernel_times(
    device: &Device,
    sizes: &KernelSizes,
    repeats: usize,
) -> Result<Vec<KernelTime>> {
    if sizes.heads == 0 || !sizes.width.is_multiple_of(sizes.heads) || sizes.length == 0 {
        bail!("kernels of {sizes:?}: no sequences of heads of one width");
    }
    let times = kernels_of(device).times(device, sizes, repeats);
    times.unwrap_or_else(|| {
        bail!("kernels of a GPU are measured on a CUDA device, not on {:?}", device.location())
    })
}
