//! Attention weights, computed from scores with mask and dropout: one kernel in the forward pass,
//! and one in the backward pass.

use super::launch::{Argument, WARP, address_of, blocks, empty, launch, suffix, word};
use crate::spec::Dropout;
use candle_core::{Result, Tensor};

/// Settings of `dropout(softmax(scores + mask))` over the keys. In the dropout mask, the index of a
/// query is the index of its packed row (one for each real token).
#[derive(Debug, Clone, Copy)]
pub(super) struct Softmax {
    pub(super) dropout: Dropout,
    /// Four numbers: heads, heads in the mask (1 if all heads share it), queries, and keys.
    pub(super) shape: [usize; 4],
}

/// Computes the attention weights.
///
/// # Shapes
/// `scores (B, H, Tq, Tk)`, `mask (B, H or 1, Tq, Tk)` in f32, `starts (B + 1,)` in u32 → the shape
/// of `scores`.
pub(super) fn forward(
    softmax: Softmax,
    scores: &Tensor,
    mask: &Tensor,
    starts: &Tensor,
) -> Result<Tensor> {
    softmax.run("softmax", &[scores, mask, starts])
}

/// Computes the gradient with respect to the scores from `gradient`, the gradient with respect to
/// the weights. The weights are computed again.
///
/// # Shapes
/// The inputs of [`forward`], and `gradient` like `scores`.
pub(super) fn back(
    softmax: Softmax,
    scores: &Tensor,
    mask: &Tensor,
    starts: &Tensor,
    gradient: &Tensor,
) -> Result<Tensor> {
    softmax.run("softmax_back", &[scores, mask, starts, gradient])
}

impl Softmax {
    fn run(&self, kernel: &str, inputs: &[&Tensor]) -> Result<Tensor> {
        let scores = inputs[0];
        let device = scores.device().as_cuda_device()?;
        let out = empty(scores.shape(), scores.dtype(), device)?;
        let rows = scores.elem_count() / self.shape[3].max(1);
        let mut arguments: Vec<Argument> = Vec::new();
        for &tensor in inputs.iter().chain(&[&out]) {
            arguments.push(address_of(tensor)?.into());
        }
        arguments.push((rows as u64).into());
        for size in self.shape {
            arguments.push(word(size)?.into());
        }
        arguments.extend(self.dropout.arguments());
        let name = format!("{kernel}_{}", suffix(scores.dtype())?);
        // SAFETY: the caller (attention) has compared all shapes.
        unsafe { launch(device, &name, blocks(rows * WARP), &arguments)? };
        Ok(out)
    }
}
