//! Time that kernels for CUDA take on the shapes of training, beside the bytes that they move.

use candle_core::{DType, Device, Result, bail};

/// Sizes of a model and of its batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelSizes {
    /// Packed tokens.
    pub rows: usize,
    /// Tokens of a sequence; each has as many.
    pub length: usize,
    /// Width of the model, a multiple of `heads`.
    pub width: usize,
    /// Heads of attention.
    pub heads: usize,
    /// Width between the layers of the feed-forward network.
    pub feed_forward: usize,
    /// Number of classes of the loss.
    pub vocabulary: usize,
    /// Type of activations.
    pub dtype: DType,
}

/// Time of a kernel.
#[derive(Debug, Clone, PartialEq)]
pub struct KernelTime {
    /// What it computes.
    pub kernel: &'static str,
    /// Rows and columns of its largest input.
    pub shape: [usize; 2],
    /// Bytes that it has to read and write.
    pub bytes: u64,
    /// Mean of the fastest of several series of launches.
    pub seconds: f64,
}

impl KernelTime {
    /// Bytes a second.
    #[must_use]
    pub fn bandwidth(&self) -> f64 {
        self.bytes as f64 / self.seconds
    }
}

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
