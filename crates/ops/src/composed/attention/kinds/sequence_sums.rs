//! Weighted sums over the tokens of sequences, composed of Candle's operations. A Linformer attends
//! to them as keys and values.

use crate::composed::{CountedProduct, pad};
use candle_core::{Result, Tensor};

/// Computes weighted sums of keys and of values; see [`crate::sequence_sums`].
///
/// # Shapes
/// The shapes of [`crate::sequence_sums`].
///
/// # Errors
/// If the shapes disagree.
pub fn sequence_sums(qkv: &Tensor, weights: [&Tensor; 2], lengths: &[usize]) -> Result<Tensor> {
    let padded = pad(qkv, lengths)?; // (B, T, 3·D), zero behind each sequence
    let (batch, longest, width) = padded.dims3()?;
    let width = width / 3;
    let summed = |index: usize| -> Result<Tensor> {
        let rank = weights[index].dim(0)?;
        let weights = weights[index].to_dtype(qkv.dtype())?.narrow(1, 0, longest)?;
        // The sequences are placed side by side, so that a single product suffices.
        let rows = padded.narrow(2, (index + 1) * width, width)?.transpose(0, 1)?;
        let rows = rows.contiguous()?.reshape((longest, batch * width))?;
        let all = weights.contiguous()?.times(&rows)?; // (rank, B·D)
        all.reshape((rank, batch, width))?.transpose(0, 1)?.reshape((batch * rank, width))
    };
    Tensor::cat(&[summed(0)?, summed(1)?], 1)
}
