//! Taper's own kernels for each device, and their times for the tensor sizes of a training step.

use candle_core::{Device, Result, Tensor, bail};

use super::{KernelSizes, KernelTime};
use crate::kernels::Kernels;

/// Kernels of a device that has none: every method returns `None`, so that operations are composed
/// of Candle's.
struct Composed;

impl Kernels for Composed {}

/// Returns the kernels of a device.
pub(crate) fn kernels_of(device: &Device) -> &'static dyn Kernels {
    #[cfg(feature = "cuda")]
    if device.is_cuda() {
        return &crate::cuda::Cuda;
    }
    let _ = device;
    &Composed
}

/// Returns the kernels for an operation on these inputs; `is_taped` says whether the operation has
/// a tape. Returns [`Composed`] if Candle is to differentiate the operation, because it cannot
/// differentiate a kernel.
///
/// # Errors
/// If the calling thread is not allowed to use the inputs' device.
pub(crate) fn kernels(is_taped: bool, inputs: &[&Tensor]) -> Result<&'static dyn Kernels> {
    inputs.iter().try_for_each(|x| super::check(x.device()))?;
    let is_tracked = !is_taped && inputs.iter().any(|x| x.track_op());
    Ok(match inputs.first().filter(|_| !is_tracked) {
        Some(first) => kernels_of(first.device()),
        None => &Composed,
    })
}

/// Measures each kernel on a CUDA device. The first result is for a copy of 256 MiB. It shows the
/// memory bandwidth of the device, for comparison with those of the kernels. Each kernel runs in
/// `repeats` series; the fastest series counts.
///
/// # Errors
/// If `device` is not a CUDA device, the sizes do not fit together, or the device has no memory
/// left.
pub fn kernel_times(
    device: &Device,
    sizes: &KernelSizes,
    repeats: usize,
) -> Result<Vec<KernelTime>> {
    let &KernelSizes { rows, length, width, heads, feed_forward, vocabulary, .. } = sizes;
    if [rows, length, width, heads, feed_forward, vocabulary].contains(&0)
        || !width.is_multiple_of(heads)
    {
        bail!(
            "kernels of {sizes:?}: all sizes must be at least 1, and heads must divide the width"
        );
    }
    let times = kernels_of(device).times(device, sizes, repeats);
    times.unwrap_or_else(|| {
        bail!("kernels of a GPU are measured on a CUDA device, not on {:?}", device.location())
    })
}
