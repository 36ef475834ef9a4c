//! Operations that a device computes with kernels of its own.
//!
//! **Decision.** An operation asks for a kernel here before it is composed of Candle's operations:
//! the only place where a device and an operation meet. Operations and models do not know devices.
//! The composed oracle uses no kernels except those that Candle can differentiate. The host's fused
//! operations are not here: their inputs are slices, and they are chosen earlier.

use crate::device::{KernelSizes, KernelTime};
use crate::spec::{
    AdamStep, AttentionSpec, CrossEntropySpec, Dropout, EmbeddingSpec, LinearSpec, NormSpec,
};
use crate::tape::{ParameterStore, Tape};
use candle_core::{Device, Result, Tensor};
use std::ops::Range;

/// Sums of a block of logits, and the gradient of the loss by them if it was requested.
pub(crate) type BlockOfLoss = (Tensor, Option<Tensor>);

/// Kernels of a device. A method returns `None` if there is no kernel for these inputs; the
/// operation is then composed.
///
/// Operations with a tape record themselves there. Their arguments, shapes and results are those of
/// the functions of the same names in this crate.
pub(crate) trait Kernels {
    fn linear(
        &self,
        _tape: Option<&Tape>,
        _x: &Tensor,
        _weight: &Tensor,
        _bias: Option<&Tensor>,
        _residual: Option<&Tensor>,
        _spec: &LinearSpec,
    ) -> Option<Result<Tensor>> {
        None
    }

    fn norm(
        &self,
        _tape: Option<&Tape>,
        _x: &Tensor,
        _weight: &Tensor,
        _bias: Option<&Tensor>,
        _spec: &NormSpec,
    ) -> Option<Result<Tensor>> {
        None
    }

    fn embedding(
        &self,
        _tape: Option<&Tape>,
        _table: &Tensor,
        _positions: Option<&Tensor>,
        _spec: &EmbeddingSpec,
    ) -> Option<Result<Tensor>> {
        None
    }

    /// Attention without a bias.
    fn self_attention(
        &self,
        _tape: Option<&Tape>,
        _qkv: &Tensor,
        _spec: &AttentionSpec,
    ) -> Option<Result<Tensor>> {
        None
    }

    /// Attention without a bias.
    fn cross_attention(
        &self,
        _tape: Option<&Tape>,
        _query: &Tensor,
        _key_value: &Tensor,
        _spec: &AttentionSpec,
    ) -> Option<Result<Tensor>> {
        None
    }

    /// Multiplies `x` by the mask of a dropout. Candle differentiates it.
    fn drop(&self, _x: &Tensor, _dropout: Dropout) -> Option<Result<Tensor>> {
        None
    }

    /// Selects rows: row `i` of the result is row `index[i]` of `x`, or zeros for
    /// [`ABSENT`](crate::ABSENT); `back` is the inverse, from rows of `x` to rows of the result.
    /// Candle differentiates it.
    ///
    /// # Shapes
    /// `x (N, D)`, `index (M,)` and `back (N,)` in u32 → `(M, D)`.
    fn rows(&self, _x: &Tensor, _index: &Tensor, _back: &Tensor) -> Option<Result<Tensor>> {
        None
    }

    /// Number of logits in a block of a loss; `None` for the composed loss's number.
    fn logits_at_once(&self, _spec: &CrossEntropySpec) -> Option<usize> {
        None
    }

    /// Computes the sums of a block of rows: smoothed, nll, correct, divergence; and, if requested,
    /// the gradient of the loss by the logits, which may replace them.
    ///
    /// # Shapes
    /// `logits (R, V)`, `targets (R, 1)` in u32 and below `V` → `(4,)` in f32, and `(R, V)`.
    fn block_of_loss(
        &self,
        _logits: &Tensor,
        _targets: &Tensor,
        _spec: &CrossEntropySpec,
        _differentiate: bool,
    ) -> Option<Result<BlockOfLoss>> {
        None
    }

    /// Computes `gradientᵀ · x` in f32, added to `sum` in place if there is one.
    ///
    /// # Shapes
    /// `gradient (N, O)`, `x (N, I)` of the same type, `sum (O, I)` in f32 → `(O, I)` in f32.
    fn weight_gradient(
        &self,
        _gradient: &Tensor,
        _x: &Tensor,
        _sum: Option<&Tensor>,
    ) -> Option<Result<Tensor>> {
        None
    }

    /// See [`crate::adam_step()`], which has checked the lengths.
    fn adam_step(
        &self,
        _store: &ParameterStore,
        _range: &Range<usize>,
        _gradient: &Tensor,
        _moments: &mut [Tensor; 2],
        _step: &AdamStep,
    ) -> Option<Result<()>> {
        None
    }

    /// See [`crate::device::kernel_times()`].
    fn times(
        &self,
        _device: &Device,
        _sizes: &KernelSizes,
        _repeats: usize,
    ) -> Option<Result<Vec<KernelTime>>> {
        None
    }
}
