//! Selection of rows of a tensor by index. If each row is selected at most once, the backward pass
//! is also a selection.

use super::launch::{address, address_of, launch, no_host, room, suffix, walking_in_pieces, word};
use candle_core::backend::BackendStorage;
use candle_core::{CpuStorage, CudaStorage, CustomOp1, Layout, Result, Shape, Tensor, bail};

/// Selects rows; see [`Kernels::rows`](crate::kernels::Kernels::rows).
///
/// # Shapes
/// The shapes of [`Kernels::rows`](crate::kernels::Kernels::rows).
pub(super) fn rows(x: &Tensor, index: &Tensor, back: &Tensor) -> Result<Tensor> {
    if x.dim(0)? != back.elem_count() {
        bail!(
            "the rows of {:?} need one index back each, but there are {:?}",
            x.shape(),
            back.shape()
        );
    }
    x.contiguous()?.apply_op1(Rows { index: index.clone(), back: Some(back.clone()) })
}

/// Selects rows of a table, each any number of times; not differentiable.
///
/// # Shapes
/// `table (V, D)`, `index (M,)` in u32 and below `V` → `(M, D)`.
pub(super) fn looked_up(table: &Tensor, index: &Tensor) -> Result<Tensor> {
    table.contiguous()?.apply_op1_no_bwd(&Rows { index: index.clone(), back: None })
}

struct Rows {
    index: Tensor,
    /// For each row of `x`, the row of the result that it became; `None` if rows can be selected
    /// several times.
    back: Option<Tensor>,
}

impl CustomOp1 for Rows {
    fn name(&self) -> &'static str {
        "rows by number"
    }

    fn cpu_fwd(&self, _: &CpuStorage, _: &Layout) -> Result<(CpuStorage, Shape)> {
        no_host(self.name())
    }

    fn cuda_fwd(&self, x: &CudaStorage, layout: &Layout) -> Result<(CudaStorage, Shape)> {
        let (_, width) = layout.shape().dims2()?;
        let rows = self.index.elem_count();
        let out = room(&x.device, x.dtype(), rows * width)?;
        let arguments = [
            address(x, layout)?.into(),
            address_of(&self.index)?.into(),
            address(&out, &Layout::contiguous(rows * width))?.into(),
            ((rows * width) as u64).into(),
            word(width)?.into(),
        ];
        let name = format!("rows_{}", suffix(x.dtype())?);
        // SAFETY: the index has an entry for each row of the result: the index of a row of `x`, or
        // `ABSENT`.
        unsafe {
            let grid = walking_in_pieces(rows * width, x.dtype());
            launch(&x.device, &name, grid, &arguments)?;
        }
        Ok((out, (rows, width).into()))
    }

    fn bwd(&self, _: &Tensor, _: &Tensor, gradient: &Tensor) -> Result<Option<Tensor>> {
        let Some(back) = &self.back else {
            bail!("rows that were selected without indices back are not differentiable")
        };
        let back = Self { index: back.clone(), back: Some(self.index.clone()) };
        gradient.contiguous()?.apply_op1_no_bwd(&back).map(Some)
    }
}
