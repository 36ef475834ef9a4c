//! Operations that a device computes with its own kernels.
//!
//! **Decision.** An operation asks for a kernel here before it falls back to a composition of
//! Candle's operations. This is the only place where a device and an operation meet: operations and
//! models do not know devices. The reference for tests, which is composed of Candle's operations,
//! uses only kernels that Candle can differentiate. The host's fused operations are not here: their
//! inputs are slices, and they are chosen earlier.

use crate::device::{KernelSizes, KernelTime};
use crate::spec::{
    AdamStep, AttentionSpec, CrossEntropySpec, Dropout, EmbeddingSpec, LinearSpec, NormSpec,
};
use crate::tape::{ParameterStore, Tape};
use candle_core::{Device, Result, Tensor};
use std::ops::Range;

/// Sums over a block of rows of logits, and the gradient of the loss with respect to the logits if
/// it was requested.
pub(crate) type BlockOfLoss = (Tensor, Option<Tensor>);

/// Kernels of a device. A method returns `None` if the device has no kernel for these inputs; the
/// operation is then composed of Candle's operations.
///
/// A method with an argument `_tape` records its operation on that tape. Arguments, shapes and
/// results are those of the functions of the same names in this crate.
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

    /// Computes self-attention without a bias on the scores.
    fn self_attention(
        &self,
        _tape: Option<&Tape>,
        _qkv: &Tensor,
        _spec: &AttentionSpec,
    ) -> Option<Result<Tensor>> {
        None
    }

    /// Computes cross-attention without a bias on the scores.
    fn cross_attention(
        &self,
        _tape: Option<&Tape>,
        _query: &Tensor,
        _key_value: &Tensor,
        _spec: &AttentionSpec,
    ) -> Option<Result<Tensor>> {
        None
    }

    /// Multiplies `_x` by the mask of a dropout. Candle can differentiate the result.
    fn drop(&self, _x: &Tensor, _dropout: Dropout) -> Option<Result<Tensor>> {
        None
    }

    /// Selects rows: row `i` of the result is row `index[i]` of `x`, or zeros if `index[i]` is
    /// [`ABSENT`](crate::ABSENT). `back` is the inverse: for each row of `x`, its row of the
    /// result. Candle can differentiate the result.
    ///
    /// # Shapes
    /// `x (N, D)`, `index (M,)` and `back (N,)` in u32 → `(M, D)`.
    fn rows(&self, _x: &Tensor, _index: &Tensor, _back: &Tensor) -> Option<Result<Tensor>> {
        None
    }

    /// Returns the number of logits that the loss processes in one block; `None` means the number
    /// that the composed loss uses.
    fn logits_at_once(&self, _spec: &CrossEntropySpec) -> Option<usize> {
        None
    }

    /// Computes four sums over a block of rows of logits: the smoothed loss, the negative
    /// log-likelihood, the number of correct predictions, and the divergence.
    /// [`LossSums`](crate::LossSums) describes them. If `_differentiate` is true, also computes the
    /// gradient of the loss with respect to the logits. The gradient can be written over the
    /// logits.
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

    /// Computes `gradientᵀ · x` in f32. If there is a `sum`, the product is added to it in place.
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
