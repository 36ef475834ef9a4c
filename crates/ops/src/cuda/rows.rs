//! Selection of rows of a tensor by number.
//!
//! Candle's backward pass adds to rows with one thread for each column, which walks over all
//! selected rows: a millisecond, while other operations take microseconds. Here, if each row is
//! selected at most once, the backward pass is again a selection; otherwise each row's gradient is
//! the sum over its uses, in their order.

use super::launch::{
    THREADS, address, address_of, computes, launch, no_host, room, suffix, walking_in_pieces, word,
};
use candle_core::backend::BackendStorage;
use candle_core::{CpuStorage, CudaStorage, CustomOp1, Layout, Result, Shape, Tensor, bail};
use std::sync::Arc;

/// Selects rows: row `i` of the result is row `index[i]` of `x`, or zeros for
/// [`ABSENT`](crate::ABSENT); `back` is the inverse, from rows of `x` to rows of the result. `None`
/// for types without a kernel.
///
/// # Shapes
/// `x (N, D)`, `index (M,)` and `back (N,)` in u32 → `(M, D)`.
pub(crate) fn rows(x: &Tensor, index: &Tensor, back: &Tensor) -> Option<Result<Tensor>> {
    let select = || {
        if x.dim(0)? != back.elem_count() {
            bail!("rows of {:?}, and back {:?}", x.shape(), back.shape());
        }
        x.contiguous()?.apply_op1(Rows { index: index.clone(), back: Back::Rows(back.clone()) })
    };
    computes(x.dtype()).then(select)
}

/// Looks up rows `ids` of a table, any of them repeatedly. `None` for types without a kernel.
///
/// # Shapes
/// `table (V, D)` → `(M, D)`.
pub(crate) fn looked_up(table: &Tensor, ids: &Arc<[u32]>) -> Option<Result<Tensor>> {
    let select = || {
        let index = Tensor::from_slice(ids, ids.len(), table.device())?;
        table.contiguous()?.apply_op1(Rows { index, back: Back::Sums(ids.clone()) })
    };
    computes(table.dtype()).then(select)
}

struct Rows {
    index: Tensor,
    back: Back,
}

enum Back {
    /// Rows by number, each at most once.
    Rows(Tensor),
    /// Sums over the uses of each row, by the numbers that were looked up.
    Sums(Arc<[u32]>),
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
        // SAFETY: the index has an entry for each row: the number of a row of `x`, or none.
        unsafe {
            let grid = walking_in_pieces(rows * width, x.dtype());
            launch(&x.device, &name, grid, &arguments)?;
        }
        Ok((out, (rows, width).into()))
    }

    fn bwd(&self, x: &Tensor, _: &Tensor, gradient: &Tensor) -> Result<Option<Tensor>> {
        let gradient = gradient.contiguous()?;
        match &self.back {
            Back::Rows(back) => {
                let back = Self { index: back.clone(), back: Back::Rows(self.index.clone()) };
                gradient.apply_op1_no_bwd(&back).map(Some)
            }
            Back::Sums(ids) => sums(&gradient, ids, x.dim(0)?).map(Some),
        }
    }
}

/// Sums, for each of `rows`, the rows of `x` at which `ids` has its number.
///
/// # Shapes
/// `x (M, D)` → `(rows, D)`.
fn sums(x: &Tensor, ids: &[u32], rows: usize) -> Result<Tensor> {
    let width = x.dim(1)?;
    let out = Tensor::zeros((rows, width), x.dtype(), x.device())?;
    let mut order: Vec<u32> = (0..word(ids.len())?).collect();
    order.sort_by_key(|&at| ids[at as usize]);
    let (mut found, mut ends) = (Vec::new(), Vec::new());
    for same in order.chunk_by(|&a, &b| ids[a as usize] == ids[b as usize]) {
        found.push(ids[same[0] as usize]);
        ends.push(ends.last().copied().unwrap_or(0) + same.len() as u32);
    }
    let count = found.len();
    let numbers: Vec<u32> = [found, ends, order].concat();
    let numbers = Tensor::from_slice(&numbers, numbers.len(), x.device())?;
    let part = |start, len| address_of(&numbers.narrow(0, start, len)?);
    let arguments = [
        address_of(x)?.into(),
        part(0, count)?.into(),
        part(count, count)?.into(),
        part(2 * count, ids.len())?.into(),
        address_of(&out)?.into(),
        word(width)?.into(),
    ];
    let name = format!("row_sums_{}", suffix(x.dtype())?);
    let grid = (width.div_ceil(THREADS), count);
    // SAFETY: each id is the number of a row, as the lookup has checked; `order` has all rows of
    // `x`.
    unsafe { launch(x.device().as_cuda_device()?, &name, grid, &arguments)? };
    Ok(out)
}
