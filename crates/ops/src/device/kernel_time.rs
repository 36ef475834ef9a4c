//! Kernels for CUDA by the time that they take, as data.

use candle_core::DType;

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
    /// Name of its computation.
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
