//! Matrix products on strided host slices: the one place that calls the `gemm` crate.
//!
//! Results do not depend on the number of threads: `gemm` splits rows and columns between threads,
//! never the summed dimension.

use crate::real::Real;
use gemm::Parallelism;

/// A matrix inside a slice: element `(i, j)` is at `offset + i·row + j·column`.
#[derive(Clone, Copy)]
pub(crate) struct Matrix {
    pub(crate) offset: usize,
    pub(crate) row: usize,
    pub(crate) column: usize,
}

impl Matrix {
    /// A row-major matrix with `width` elements from row to row.
    pub(crate) const fn rows(width: usize) -> Self {
        Self { offset: 0, row: width, column: 1 }
    }

    pub(crate) const fn at(self, offset: usize) -> Self {
        Self { offset, ..self }
    }

    /// The transpose, without moving anything.
    pub(crate) const fn transposed(self) -> Self {
        Self { row: self.column, column: self.row, ..self }
    }

    const fn end(&self, rows: usize, columns: usize) -> usize {
        if rows == 0 || columns == 0 { self.offset } else { self.offset + (rows - 1) * self.row + (columns - 1) * self.column + 1 }
    }
}

/// How a product treats what is in its destination.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Into {
    /// Overwrite it.
    Replace,
    /// Add to it.
    Add,
}

/// `out (m, n) = scale · a (m, k) · b (k, n)`, replacing or adding to what `out` holds.
#[allow(clippy::too_many_arguments)]
pub(crate) fn matmul<T: Real>(
    (m, k, n): (usize, usize, usize),
    (a, a_at): (&[T], Matrix),
    (b, b_at): (&[T], Matrix),
    (out, out_at): (&mut [T], Matrix),
    into: Into,
    scale: T,
    parallelism: Parallelism,
) {
    assert!(a_at.end(m, k) <= a.len() && b_at.end(k, n) <= b.len() && out_at.end(m, n) <= out.len());
    if m == 0 || n == 0 {
        return;
    }
    let stride = |x: usize| x as isize;
    // SAFETY: the assertion above keeps every element that the strides reach inside its slice, and
    // `out` is borrowed mutably, so it overlaps neither operand.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            out.as_mut_ptr().add(out_at.offset),
            stride(out_at.column),
            stride(out_at.row),
            into == Into::Add,
            a.as_ptr().add(a_at.offset),
            stride(a_at.column),
            stride(a_at.row),
            b.as_ptr().add(b_at.offset),
            stride(b_at.column),
            stride(b_at.row),
            T::of(1.0),
            scale,
            false,
            false,
            false,
            parallelism,
        );
    }
}

/// The parallelism of a product that stands alone: every thread of the pool.
pub(crate) fn all_threads() -> Parallelism {
    Parallelism::Rayon(0)
}
