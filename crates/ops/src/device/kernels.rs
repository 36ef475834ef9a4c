//! Time that kernels for CUDA take on the shapes of training, beside the bytes that they move.

use candle_core::{Device, Result, bail};

use super::{KernelSizes, KernelTime};

/// Measures each kernel on a CUDA device; the first is a copy of 256 MiB, whose bandwidth is what
/// the others are compared with. Each runs in `repeats` series, the fastest of which counts.
///
/// # Errors
/// On another device, when the sizes do not fit together, or when the device has no memory left.
pub fn kernel_times(
    device: &Device,
    sizes: &KernelSizes,
    repeats: usize,
) -> Result<Vec<KernelTime>> {
    if sizes.heads == 0 || !sizes.width.is_multiple_of(sizes.heads) || sizes.length == 0 {
        bail!("kernels of {sizes:?}: no sequences of heads of one width");
    }
    #[cfg(feature = "cuda")]
    if device.is_cuda() {
        return crate::cuda::kernel_times(device, sizes, repeats);
    }
    let _ = repeats;
    bail!("kernels of a GPU are measured on a CUDA device, not on {:?}", device.location())
}
