//! Layer normalisation: one kernel forward, and three backward.

use super::launch::{
    WARP, address, address_of, blocks, computes, empty, launch, no_host, room, suffix, word,
};
use super::row_sums::{RowBlocks, sum_columns_for};
use candle_core::backend::BackendStorage;
use candle_core::{
    CpuStorage, CudaStorage, CustomOp3, D, DType, Layout, Result, Shape, Tensor, bail,
};

/// See [`crate::composed::norm`]; `None` for types without a kernel.
///
/// # Shapes
/// `x (…, D)`, `weight (D,)`, `bias (D,)` → the shape of `x`.
pub(crate) fn layer_norm(
    x: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    epsilon: f64,
) -> Option<Result<Tensor>> {
    let normal = || {
        let weight = weight.to_dtype(DType::F32)?;
        let bias = match bias {
            Some(bias) => bias.to_dtype(DType::F32)?,
            None => weight.zeros_like()?,
        };
        let norm = LayerNorm { epsilon };
        x.contiguous()?.apply_op3(&weight.contiguous()?, &bias.contiguous()?, norm)
    };
    computes(x.dtype()).then(normal)
}

pub(super) struct LayerNorm {
    pub(super) epsilon: f64,
}

/// Grid of blocks of warps, one warp for each row.
fn rows_of_warps(rows: usize) -> (usize, usize) {
    blocks(rows * WARP)
}

impl CustomOp3 for LayerNorm {
    fn name(&self) -> &'static str {
        "layer normalisation"
    }

    fn cpu_fwd(
        &self,
        _: &CpuStorage,
        _: &Layout,
        _: &CpuStorage,
        _: &Layout,
        _: &CpuStorage,
        _: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        no_host(self.name())
    }

    fn cuda_fwd(
        &self,
        x: &CudaStorage,
        layout: &Layout,
        weight: &CudaStorage,
        weight_layout: &Layout,
        bias: &CudaStorage,
        bias_layout: &Layout,
    ) -> Result<(CudaStorage, Shape)> {
        let shape = layout.shape();
        let (count, width) = (shape.elem_count(), weight_layout.shape().elem_count());
        if shape.dims().last() != Some(&width) || bias_layout.shape().elem_count() != width {
            bail!("rows of {shape:?} do not have the norm's width {width}");
        }
        let rows = count / width.max(1);
        let out = room(&x.device, x.dtype(), count)?;
        let name = format!("layer_norm_{}", suffix(x.dtype())?);
        let arguments = [
            address(x, layout)?.into(),
            address(weight, weight_layout)?.into(),
            address(bias, bias_layout)?.into(),
            address(&out, &Layout::contiguous(count))?.into(),
            (rows as u64).into(),
            word(width)?.into(),
            self.epsilon.into(),
        ];
        // SAFETY: `rows` of `width` elements in and out, and a weight and a bias for each column.
        unsafe { launch(&x.device, &name, rows_of_warps(rows), &arguments)? };
        Ok((out, shape.clone()))
    }

    fn bwd(
        &self,
        x: &Tensor,
        weight: &Tensor,
        bias: &Tensor,
        _: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let device = x.device().as_cuda_device()?;
        let (gradient, width) = (gradient.contiguous()?, x.dim(D::Minus1)?);
        let (rows, suffix) = (x.elem_count() / width.max(1), suffix(x.dtype())?);
        let of_x = empty(x.shape(), x.dtype(), device)?;
        let statistics = empty((rows, 2), DType::F32, device)?;
        let [x_at, gradient_at, statistics_at] = [x, &gradient, &statistics].map(address_of);
        let (x_at, gradient_at, statistics_at) = (x_at?, gradient_at?, statistics_at?);
        let arguments = [
            x_at.into(),
            address_of(weight)?.into(),
            gradient_at.into(),
            address_of(&of_x)?.into(),
            statistics_at.into(),
            (rows as u64).into(),
            word(width)?.into(),
            self.epsilon.into(),
        ];
        // SAFETY: `rows` of `width` elements, a weight for each column, two numbers for each row.
        unsafe {
            launch(device, &format!("layer_norm_back_{suffix}"), rows_of_warps(rows), &arguments)?;
        }
        let blocks = RowBlocks::new(rows, width, x.dtype())?;
        let sums = blocks.parts(2 * width, device)?;
        let arguments = [
            x_at.into(),
            gradient_at.into(),
            statistics_at.into(),
            address_of(&sums)?.into(),
            (rows as u64).into(),
            word(width)?.into(),
            blocks.at_once.into(),
        ];
        // SAFETY: like above, with two rows of sums for each block of rows.
        unsafe { launch(device, &format!("layer_norm_sums_{suffix}"), blocks.grid, &arguments)? };
        let (of_weight, of_bias) =
            (sum_columns_for(weight, &sums, 0)?, sum_columns_for(bias, &sums, width)?);
        Ok((Some(of_x), of_weight, of_bias))
    }
}
