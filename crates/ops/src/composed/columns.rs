//! Concatenation of columns, windows of neighbouring rows, and gated linear units, composed of
//! Candle's operations.

use super::linear::activated;
use super::{drop, wide};
use crate::spec::{Dropout, GatedSpec};
use candle_core::{Result, Tensor};
use std::ops::Range;

/// Concatenates columns; see [`crate::columns()`].
///
/// # Shapes
/// The shapes of [`crate::columns()`].
///
/// # Errors
/// If the parts differ in their numbers of rows.
pub fn columns(parts: &[&Tensor], dropout: Dropout) -> Result<Tensor> {
    drop(&Tensor::cat(parts, 1)?.contiguous()?, dropout)
}

/// Computes a gated linear unit in f32 or wider; see [`crate::gated()`].
///
/// # Shapes
/// The shapes of [`crate::gated()`].
///
/// # Errors
/// If the device has no memory left.
pub fn gated(x: &Tensor, spec: &GatedSpec) -> Result<Tensor> {
    let values = wide(x)?;
    let width = values.dim(1)? / 2;
    let (a, b) = (values.narrow(1, 0, width)?, values.narrow(1, width, width)?);
    drop(&a.mul(&activated(b, spec.activation)?)?, spec.dropout)?.to_dtype(x.dtype())
}

/// Concatenates each row with its neighbours; see [`crate::windows()`].
///
/// # Shapes
/// The shapes of [`crate::windows()`].
///
/// # Errors
/// If the device has no memory left.
pub fn windows(x: &Tensor, lengths: &[usize], (before, after): (usize, usize)) -> Result<Tensor> {
    let (rows, width) = x.dims2()?;
    let count = before + 1 + after;
    let table = x.pad_with_zeros(0, 0, 1)?;
    let mut neighbours = Vec::with_capacity(rows * count);
    for sequence in sequences(lengths) {
        for row in sequence.clone() {
            for neighbour in 0..count {
                let at = (row + neighbour).checked_sub(before);
                let at = at.filter(|at| sequence.contains(at)).unwrap_or(rows);
                neighbours.push(at as u32);
            }
        }
    }
    let neighbours = Tensor::from_vec(neighbours, rows * count, x.device())?;
    table.index_select(&neighbours, 0)?.reshape((rows, count * width))
}

/// Returns the range of rows of each sequence.
pub(crate) fn sequences(lengths: &[usize]) -> Vec<Range<usize>> {
    let mut first = 0;
    let of_length = |&length: &usize| {
        first += length;
        first - length..first
    };
    lengths.iter().map(of_length).collect()
}
