//! Kernels for CUDA by the time that they take, as data.

use candle_core::DType;

/// Sizes of a model and of its batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelSizes {
    /// Packed tokens.
    pub rows: usize,
    /// Number of tokens of each sequence.
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
    /// Name of the computation.
    pub kernel: &'static str,
    /// Rows and columns of the largest input.
    pub shape: [usize; 2],
    /// Number of bytes that the kernel has to read and write.
    pub bytes: u64,
    /// Mean time of a launch in the fastest of several series.
    pub seconds: f64,
}

impl KernelTime {
    /// Bytes a second.
    #[must_use]
    pub fn bandwidth(&self) -> f64 {
        self.bytes as f64 / self.seconds
    }
}
