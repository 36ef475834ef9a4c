//! Matrix products with tiles (small blocks of scores). Operands are packed (copied to the kernel's
//! order) if there is a kernel that packs. Otherwise, and in f64, they stay as they are.

use crate::float::Float;
use crate::products::{Matrix, PANEL, Packed, PackedProducts, Packing, Products, Threads, product};
use crate::shared::Write;
use std::marker::PhantomData;
use std::ops::Range;

/// Some rows of one head in one sequence.
#[derive(Clone, Copy)]
pub(in super::super) struct Rows<'a, T> {
    pub(in super::super) values: &'a [T],
    pub(in super::super) at: Matrix,
    pub(in super::super) count: usize,
    /// Number of values in a row.
    pub(in super::super) width: usize,
}

impl<T> Rows<'_, T> {
    fn from(&self, row: usize) -> Matrix {
        self.at.at(self.at.offset + row * self.at.row)
    }
}

/// The two kinds of matrix products that attention needs.
pub(in super::super) trait TileProducts: Sync {
    type Value: Float;
    /// Rows of a head, prepared for many products of one kind.
    type Operand<'a>: Send + Sync;
    /// Working memory of a thread.
    type Worker;

    fn worker(&self) -> Self::Worker;

    /// Prepares rows as the left operand of [`multiply`](Self::multiply).
    fn left<'a>(&self, rows: Rows<'a, Self::Value>) -> Self::Operand<'a>;

    /// Prepares rows as the right operand of [`multiply`](Self::multiply).
    fn right<'a>(&self, rows: Rows<'a, Self::Value>) -> Self::Operand<'a>;

    /// Prepares rows whose weighted sums [`add_weighted`](Self::add_weighted) computes.
    fn summed<'a>(&self, rows: Rows<'a, Self::Value>) -> Self::Operand<'a>;

    /// Computes `tile[i][j] = left[i] · right[j]` for a range of rows of each operand. Both ranges
    /// begin at whole panels (of [`PANEL`] rows), and the right range has at most [`PANEL`] rows.
    /// The tile must have room for the left range, rounded up to whole panels.
    fn multiply(
        &self,
        worker: &mut Self::Worker,
        left: (&Self::Operand<'_>, Range<usize>),
        right: (&Self::Operand<'_>, Range<usize>),
        tile: &mut [[Self::Value; PANEL]],
    );

    /// Computes `Σ_j weights[i, j] · rows[from + j]` for each row `i`, for weights of shape
    /// `(m, k)`. Depending on `write`, this replaces `sums[i]` or is added to it. Rows of `sums`
    /// are padded to a multiple of [`PANEL`]. `from` is a multiple of [`PANEL`].
    fn add_weighted(
        &self,
        worker: &mut Self::Worker,
        weights: (&[Self::Value], Matrix),
        shape: (usize, usize),
        rows: (&Self::Operand<'_>, usize),
        sums: &mut [Self::Value],
        write: Write,
    );
}

/// Rows of [`PANEL`] values, aligned to cache lines. Kernels of multiply-add instructions read
/// their operands in this order, so that a tile need not be packed.
pub(in super::super) struct Tile<T> {
    values: Vec<T>,
    first: usize,
}

impl<T: Float> Tile<T> {
    pub(in super::super) fn new(rows: usize) -> Self {
        const LINE: usize = 64;
        let values = vec![T::default(); rows * PANEL + LINE / size_of::<T>()];
        let first = values.as_ptr().align_offset(LINE);
        Self { values, first }
    }

    pub(in super::super) fn rows(&mut self) -> &mut [[T; PANEL]] {
        self.values[self.first..].as_chunks_mut().0
    }
}

/// Returns the number of values from one row of sums to the next, for heads of width `width`.
pub(in super::super) fn stride(width: usize) -> usize {
    width.next_multiple_of(PANEL)
}

/// Products on operands that are not packed.
pub(in super::super) struct Plain<T> {
    pub(in super::super) products: Products,
    pub(in super::super) values: PhantomData<fn() -> T>,
}

impl<T: Float> TileProducts for Plain<T> {
    type Value = T;
    type Operand<'a> = Rows<'a, T>;
    type Worker = ();

    fn worker(&self) -> Self::Worker {}

    fn left<'a>(&self, rows: Rows<'a, T>) -> Rows<'a, T> {
        rows
    }

    fn right<'a>(&self, rows: Rows<'a, T>) -> Rows<'a, T> {
        rows
    }

    fn summed<'a>(&self, rows: Rows<'a, T>) -> Rows<'a, T> {
        rows
    }

    fn multiply(
        &self,
        (): &mut (),
        (left, rows): (&Rows<'_, T>, Range<usize>),
        (right, columns): (&Rows<'_, T>, Range<usize>),
        tile: &mut [[T; PANEL]],
    ) {
        product(
            (rows.len(), left.width, columns.len()),
            (left.values, left.from(rows.start)),
            (right.values, right.from(columns.start).transposed()),
            (tile.as_flattened_mut(), Matrix::rows(PANEL)),
            Write::Replace,
            (self.products, Threads::One),
        );
    }

    fn add_weighted(
        &self,
        (): &mut (),
        (weights, at): (&[T], Matrix),
        (m, k): (usize, usize),
        (rows, from): (&Rows<'_, T>, usize),
        sums: &mut [T],
        write: Write,
    ) {
        product(
            (m, k, rows.width),
            (weights, at),
            (rows.values, rows.from(from)),
            (sums, Matrix::rows(stride(rows.width))),
            write,
            (self.products, Threads::One),
        );
    }
}

/// Products on operands that are packed as the [`Packing`] describes.
pub(in super::super) struct PackedTiles(pub(in super::super) Packing);

impl PackedTiles {
    /// Returns how operands are packed: each on a single thread, because several heads and blocks
    /// are packed in parallel.
    fn alone(&self) -> (Packing, Threads) {
        (self.0, Threads::One)
    }
}

/// A packed operand, with the number of values in a row.
pub(in super::super) struct PackedRows {
    packed: Packed,
    width: usize,
}

impl TileProducts for PackedTiles {
    type Value = f32;
    type Operand<'a> = PackedRows;
    type Worker = PackedProducts;

    fn worker(&self) -> PackedProducts {
        PackedProducts::new(self.0)
    }

    fn left<'a>(&self, Rows { values, at, count, width }: Rows<'a, f32>) -> PackedRows {
        PackedRows { packed: Packed::left((values, at), count, width, self.alone()), width }
    }

    fn right<'a>(&self, Rows { values, at, count, width }: Rows<'a, f32>) -> PackedRows {
        let columns = (values, at.transposed());
        PackedRows { packed: Packed::right(columns, width, count, self.alone()), width }
    }

    fn summed<'a>(&self, Rows { values, at, count, width }: Rows<'a, f32>) -> PackedRows {
        PackedRows { packed: Packed::right((values, at), count, width, self.alone()), width }
    }

    fn multiply(
        &self,
        worker: &mut PackedProducts,
        (left, rows): (&PackedRows, Range<usize>),
        (right, columns): (&PackedRows, Range<usize>),
        tile: &mut [[f32; PANEL]],
    ) {
        crate::profile::count_product(rows.len(), left.width, columns.len());
        let panels = |range: &Range<usize>| range.start / PANEL..range.end.div_ceil(PANEL);
        let (left, right) = ((&left.packed, panels(&rows)), (&right.packed, panels(&columns)));
        worker.multiply_panels(left, right, tile.as_flattened_mut(), PANEL);
    }

    fn add_weighted(
        &self,
        worker: &mut PackedProducts,
        (weights, at): (&[f32], Matrix),
        (m, k): (usize, usize),
        (rows, from): (&PackedRows, usize),
        sums: &mut [f32],
        write: Write,
    ) {
        crate::profile::count_product(m, k, rows.width);
        let sums = (sums, stride(rows.width));
        let rows = (&rows.packed, from / PANEL);
        worker.multiply_matrix((weights, at), (m, k), rows, sums, write);
    }
}
