//! Sums over rows, in two passes: first over the rows of each block, then over the blocks.

use super::launch::{PIECE, address_of, empty, launch, word};
use crate::tape::{Adjoints, Slot};
use candle_core::{CudaDevice, DType, Result, Tensor, bail};

/// Largest number of blocks of rows over which a gradient is summed.
const ROW_BLOCKS: usize = 256;
/// Number of threads along each side of a block of threads, which is a square (`TILE` in
/// `common.cuh`). A block therefore reads this many rows at the same time.
const TILE: usize = 16;

/// Division of rows into blocks over which a gradient is summed.
#[derive(Debug, Clone, Copy)]
pub(super) struct RowBlocks {
    /// Grid: number of tiles (groups of neighbouring columns that a block of threads sums), and
    /// number of blocks of rows.
    pub(super) grid: (usize, usize),
    /// Number of rows in a block.
    pub(super) at_once: u32,
}

impl RowBlocks {
    /// Divides `rows` rows of `width` elements of type `dtype`.
    pub(super) fn new(rows: usize, width: usize, dtype: DType) -> Result<Self> {
        let at_once = rows.div_ceil(ROW_BLOCKS).max(TILE);
        let tile = TILE * PIECE / dtype.size_in_bytes();
        let grid = (width.div_ceil(tile), rows.div_ceil(at_once));
        Ok(Self { grid, at_once: word(at_once)? })
    }

    /// Allocates `width` sums for each block of rows.
    pub(super) fn parts(&self, width: usize, device: &CudaDevice) -> Result<Tensor> {
        empty((self.grid.1, width), DType::F32, device)
    }
}

/// Sums the rows of `x` in f32, in an order that depends only on the number of rows.
///
/// # Shapes
/// `x (N, D)` → `(D,)`.
pub(super) fn sum_rows(x: &Tensor) -> Result<Tensor> {
    let width = x.dim(1)?;
    let out = empty(width, DType::F32, x.device().as_cuda_device()?)?;
    sum_columns(x, 0, &out, false)?;
    Ok(out)
}

/// Adds the sums of `width` columns of `x`, from column `first` on, to the gradient with respect to
/// a parameter. They are added in place if the parameter has a part in the buffer of all
/// parameters' gradients.
///
/// # Shapes
/// `x (N, …)`.
pub(super) fn sum_columns_for(
    parameter: Slot,
    width: usize,
    x: &Tensor,
    first: usize,
    adjoints: &mut Adjoints<'_>,
) -> Result<()> {
    if !adjoints.wants(parameter) {
        return Ok(());
    }
    if let Some((part, _)) = adjoints.part_of(parameter)? {
        return sum_columns(x, first, &part, true);
    }
    let out = empty(width, DType::F32, x.device().as_cuda_device()?)?;
    sum_columns(x, first, &out, false)?;
    adjoints.give_tensor(parameter, out)
}

/// Sums as many columns of `x` as `out` has, from column `first` on. Adds the sums to `out` if
/// `is_added`, otherwise writes them.
fn sum_columns(x: &Tensor, first: usize, out: &Tensor, is_added: bool) -> Result<()> {
    let ((rows, row), width) = (x.dims2()?, out.elem_count());
    if first + width > row {
        bail!("{width} columns from column {first} on are more than {:?} has", x.shape());
    }
    let arguments = [
        (address_of(x)? + (first * size_of::<f32>()) as u64).into(),
        address_of(out)?.into(),
        word(rows)?.into(),
        word(width)?.into(),
        word(row)?.into(),
        u32::from(is_added).into(),
    ];
    let grid = (width.div_ceil(TILE), 1);
    // SAFETY: `x` has `rows` rows with these columns, and `out` has an element for each column.
    unsafe { launch(x.device().as_cuda_device()?, "sum_rows", grid, &arguments) }
}
