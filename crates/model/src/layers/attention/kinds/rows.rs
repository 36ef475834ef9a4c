//! Gathers and pads the past tokens of rows, which are texts that are being decoded.

use crate::layers::attention::past::chosen;
use crate::layers::attention::{LayerPast, PastRows};
use candle_core::{DType, Result, Tensor};

impl LayerPast {
    /// Returns the keys and values of all past tokens and, for each of `count` decoded rows, the
    /// indices of the row's own tokens among them, in order.
    pub(crate) fn tokens(
        &self,
        rows: &PastRows<'_>,
        count: usize,
    ) -> Result<(Tensor, Vec<Vec<u32>>)> {
        let Some(cached_rows) = self.cache.kept() else {
            candle_core::bail!("a step has no token")
        };
        let all = cached_rows.joined()?;
        let of_row = |row| all.visible_to(row, rows.read, rows.history).collect();
        let of_rows = (0..count).map(of_row).collect();
        Ok((all.rows, of_rows))
    }
}

/// Converts to f32 if the type is narrower.
pub(crate) fn wide(x: &Tensor) -> Result<Tensor> {
    match x.dtype() {
        DType::F16 | DType::BF16 => x.to_dtype(DType::F32),
        _ => Ok(x.clone()),
    }
}

/// Gathers lists of rows, and pads each list with rows of zeros to `longest` rows. `of_rows` has,
/// for each list, the indices of its rows in `all`. If `at_the_end` is true, the gathered rows are
/// at the end, after the padding; otherwise the padding follows them.
///
/// For M rows of the width W and R lists of T = `longest` rows: `all (M, W)` → `(R, T, W)`.
pub(crate) fn padded_rows(
    all: &Tensor,
    of_rows: &[Vec<u32>],
    longest: usize,
    at_the_end: bool,
) -> Result<Tensor> {
    let (nothing, width) = all.dims2()?;
    let zero = Tensor::zeros((1, width), all.dtype(), all.device())?;
    let with_zero = Tensor::cat(&[&all.contiguous()?, &zero], 0)?;
    let mut index = Vec::with_capacity(of_rows.len() * longest);
    for rows in of_rows {
        let padding = std::iter::repeat_n(nothing as u32, longest - rows.len());
        let (before, behind) =
            if at_the_end { (Some(padding), None) } else { (None, Some(padding)) };
        index.extend(before.into_iter().flatten());
        index.extend(rows);
        index.extend(behind.into_iter().flatten());
    }
    chosen(&with_zero, index)?.reshape((of_rows.len(), longest, width))
}
