//! Inputs and results of a measurement of CUDA kernels.

use candle_core::DType;

/// Sizes of a model and of its batch, for which kernels are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelSizes {
    /// Number of tokens in the batch, without padding.
    pub rows: usize,
    /// Number of tokens of each sequence.
    pub length: usize,
    /// Width of the model, a multiple of `heads`.
    pub width: usize,
    /// Number of attention heads.
    pub heads: usize,
    /// Width of the hidden layer of the feed-forward network.
    pub feed_forward: usize,
    /// Number of classes over which the loss is computed.
    pub vocabulary: usize,
    /// Element type of activations.
    pub dtype: DType,
}

/// Measured time of a kernel.
#[derive(Debug, Clone, PartialEq)]
pub struct KernelTime {
    /// Name of what the kernel computes.
    pub kernel: &'static str,
    /// Numbers of rows and columns of the kernel's largest input.
    pub shape: [usize; 2],
    /// Number of bytes that the kernel has to read and write in one run.
    pub bytes: u64,
    /// Mean time of a run, in seconds, in the fastest of several series of runs.
    pub seconds: f64,
}

impl KernelTime {
    /// Returns the number of bytes read and written per second.
    #[must_use]
    pub fn bandwidth(&self) -> f64 {
        self.bytes as f64 / self.seconds
    }
}
