//! Products by the `gemm` crate. They are for f64, for processors without a kernel that packs its
//! operands, and for tests of the other kernels.

use super::{Matrix, Threads};
use crate::float::Float;
use crate::shared::{Shared, Write};
use gemm::Parallelism;

/// Computes `a (m, k) · b (k, n)`. Depending on `write`, the product replaces `out (m, n)` or is
/// added to it.
///
/// # Safety
/// No other thread reads or writes `out` at the same time. If the product is added, `out` is
/// initialised.
pub(super) unsafe fn matmul<T: Float>(
    (m, k, n): (usize, usize, usize),
    (a, a_at): (&[T], Matrix),
    (b, b_at): (&[T], Matrix),
    (out, out_at): (Shared<T>, Matrix),
    write: Write,
    threads: Threads,
) {
    assert!(
        a_at.end(m, k) <= a.len() && b_at.end(k, n) <= b.len() && out_at.end(m, n) <= out.len()
    );
    if m == 0 || n == 0 {
        return;
    }
    let stride = |x: usize| x as isize;
    // SAFETY: by the assertion above, every element that the strides reach is inside its slice.
    // Only the caller uses `out`, so it overlaps neither operand.
    unsafe {
        let out = out.pointer(out_at.offset..out_at.end(m, n));
        gemm::gemm(
            m,
            n,
            k,
            out,
            stride(out_at.column),
            stride(out_at.row),
            write == Write::Add,
            a.as_ptr().add(a_at.offset),
            stride(a_at.column),
            stride(a_at.row),
            b.as_ptr().add(b_at.offset),
            stride(b_at.column),
            stride(b_at.row),
            T::cast(1.0),
            T::cast(1.0),
            false,
            false,
            false,
            if threads == Threads::All { Parallelism::Rayon(0) } else { Parallelism::None },
        );
    }
}

/// Returns a row-major copy of a matrix, with every value rounded to bf16.
pub(super) fn rounded(values: &[f32], at: Matrix, rows: usize, columns: usize) -> Vec<f32> {
    let value = |i: usize, j: usize| {
        half::bf16::from_f32(values[at.offset + i * at.row + j * at.column]).to_f32()
    };
    (0..rows).flat_map(|i| (0..columns).map(move |j| (i, j))).map(|(i, j)| value(i, j)).collect()
}
