//! Layer normalisation: one kernel in the forward pass, and three in the backward pass.

use super::launch::{WARP, address_of, blocks, empty, launch, suffix, word};
use super::row_sums::{RowBlocks, sum_columns_for};
use crate::tape::{Adjoints, Slot, Tape};
use candle_core::{D, DType, Result, Tensor, bail};

/// Computes layer normalisation; see [`crate::norm()`].
///
/// # Shapes
/// The shapes of [`crate::norm()`].
///
/// # Errors
/// If the widths differ.
pub(super) fn layer_norm(
    tape: Option<&Tape>,
    x: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    epsilon: f64,
) -> Result<Tensor> {
    let wide = |x: &Tensor| x.detach().to_dtype(DType::F32)?.contiguous();
    let norm = LayerNorm { x: x.detach().contiguous()?, weight: wide(weight)?, epsilon };
    let out = match bias {
        Some(bias) => norm.forward(&wide(bias)?)?,
        None => norm.forward(&norm.weight.zeros_like()?)?,
    };
    if let Some(tape) = tape {
        let inputs: Vec<&Tensor> = [x, weight].into_iter().chain(bias).collect();
        let (of_x, parameters) = (Slot::from(x), (Slot::from(weight), bias.map(Slot::from)));
        tape.record_tensors("layer norm", &inputs, &out, move |gradient, adjoints| {
            let gradient = norm.back(&gradient, parameters, adjoints)?;
            adjoints.give_tensor(of_x, gradient)
        })?;
    }
    Ok(out)
}

pub(super) struct LayerNorm {
    pub(super) x: Tensor,
    pub(super) weight: Tensor,
    pub(super) epsilon: f64,
}

/// Returns the grid of blocks with one warp for each row.
fn rows_of_warps(rows: usize) -> (usize, usize) {
    blocks(rows * WARP)
}

impl LayerNorm {
    /// Normalises the rows.
    fn forward(&self, bias: &Tensor) -> Result<Tensor> {
        let Self { x, weight, epsilon } = self;
        let (count, width) = (x.elem_count(), weight.elem_count());
        if x.dims().last() != Some(&width) || bias.elem_count() != width {
            bail!("rows of {:?} do not have the norm's width {width}", x.shape());
        }
        let (rows, device) = (count / width.max(1), x.device().as_cuda_device()?);
        let out = empty(x.shape(), x.dtype(), device)?;
        let arguments = [
            address_of(x)?.into(),
            address_of(weight)?.into(),
            address_of(bias)?.into(),
            address_of(&out)?.into(),
            (rows as u64).into(),
            word(width)?.into(),
            (*epsilon).into(),
        ];
        let name = format!("layer_norm_{}", suffix(x.dtype())?);
        // SAFETY: `rows` of `width` elements in and out, and a weight and a bias for each column.
        unsafe { launch(device, &name, rows_of_warps(rows), &arguments)? };
        Ok(out)
    }

    /// Computes the gradient with respect to `x`, and statistics of its rows: the mean, and the
    /// reciprocal of the standard deviation.
    ///
    /// # Shapes
    /// `gradient` with the shape of `x` → the shape of `x`, and `(rows, 2)`.
    pub(super) fn back_to_x(&self, gradient: &Tensor) -> Result<(Tensor, Tensor)> {
        let Self { x, weight, epsilon } = self;
        let (device, width) = (x.device().as_cuda_device()?, x.dim(D::Minus1)?);
        let rows = x.elem_count() / width.max(1);
        let out = empty(x.shape(), x.dtype(), device)?;
        let statistics = empty((rows, 2), DType::F32, device)?;
        let arguments = [
            address_of(x)?.into(),
            address_of(weight)?.into(),
            address_of(gradient)?.into(),
            address_of(&out)?.into(),
            address_of(&statistics)?.into(),
            (rows as u64).into(),
            word(width)?.into(),
            (*epsilon).into(),
        ];
        let name = format!("layer_norm_back_{}", suffix(x.dtype())?);
        // SAFETY: `rows` of `width` elements, a weight for each column, two numbers for each row.
        unsafe { launch(device, &name, rows_of_warps(rows), &arguments)? };
        Ok((out, statistics))
    }

    /// Sums the gradients with respect to weight and bias over each block of rows: `(blocks, 2·D)`.
    pub(super) fn parameter_sums(&self, gradient: &Tensor, statistics: &Tensor) -> Result<Tensor> {
        let x = &self.x;
        let (device, width) = (x.device().as_cuda_device()?, x.dim(D::Minus1)?);
        let rows = x.elem_count() / width.max(1);
        let blocks = RowBlocks::new(rows, width, x.dtype())?;
        let sums = blocks.parts(2 * width, device)?;
        let arguments = [
            address_of(x)?.into(),
            address_of(gradient)?.into(),
            address_of(statistics)?.into(),
            address_of(&sums)?.into(),
            (rows as u64).into(),
            word(width)?.into(),
            blocks.at_once.into(),
        ];
        let name = format!("layer_norm_sums_{}", suffix(x.dtype())?);
        // SAFETY: as in `back_to_x`, with two rows of sums for each block of rows.
        unsafe { launch(device, &name, blocks.grid, &arguments)? };
        Ok(sums)
    }

    /// Computes the gradient with respect to `x`. Adds the gradients with respect to weight and
    /// bias to those that have been collected for them.
    fn back(
        &self,
        gradient: &Tensor,
        (weight, bias): (Slot, Option<Slot>),
        adjoints: &mut Adjoints<'_>,
    ) -> Result<Tensor> {
        let (of_x, statistics) = self.back_to_x(gradient)?;
        if adjoints.wants(weight) || bias.is_some_and(|bias| adjoints.wants(bias)) {
            let sums = self.parameter_sums(gradient, &statistics)?;
            let width = self.weight.elem_count();
            sum_columns_for(weight, width, &sums, 0, adjoints)?;
            if let Some(bias) = bias {
                sum_columns_for(bias, width, &sums, width, adjoints)?;
            }
        }
        Ok(of_x)
    }
}
