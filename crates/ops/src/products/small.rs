//! Products with few rows and columns, such as those of one attention head in a short sequence.
//! They are computed by multiply-adds on operands that are read in place.
//!
//! For such a product, packing both operands (copying them to the order in which a kernel reads
//! them) would take more time than multiplying them. So values of the left operand are read one by
//! one, at any distance from each other, and rows of the right operand are read in place. The right
//! operand is copied only if it is transposed in memory, or if its columns do not fill whole
//! registers. The products that make up a result are added in order, as in the multiply-add kernels
//! that pack.

use super::kernels::vector::Vector;
use super::operand::Line;
use super::scratch::{RIGHT, with_scratch};
use super::{Kernel, Matrix};
use crate::shared::{Shared, Write};

/// Largest number of values of the right operand: they fill half of a first-level cache.
const MOST: usize = 4 * 1024;

/// A matrix, given by its first value: element `(i, j)` is at `first + i·row + j·column`.
#[derive(Clone, Copy)]
struct Source {
    first: *const f32,
    row: usize,
    column: usize,
}

impl Source {
    /// Returns the address of an element.
    ///
    /// # Safety
    /// The element must exist.
    #[inline(always)]
    unsafe fn at(self, i: usize, j: usize) -> *const f32 {
        // SAFETY: as the caller promises.
        unsafe { self.first.add(i * self.row + j * self.column) }
    }
}

/// Row-major results. If `add` is true, a product is added to them; otherwise it replaces them.
#[derive(Clone, Copy)]
struct Target {
    first: *mut f32,
    stride: usize,
    add: bool,
}

/// Function that computes `a (m, k) · b (k, n)`; the product replaces the results or is added to
/// them. `b` must be contiguous along one of its dimensions, and `scratch` must have room for its
/// rows, each padded to whole registers.
///
/// The processor must have the kernel's instructions, and all elements of the matrices must exist.
type Multiply =
    unsafe fn(shape: (usize, usize, usize), a: Source, b: Source, to: Target, scratch: *mut f32);

/// Multiplies with the variant of `kernel` for small products. Computes nothing and returns `false`
/// if the kernel has no such variant. The same holds if the right operand is too large, or is
/// contiguous along neither of its dimensions.
///
/// # Safety
/// The operands and the destination are in bounds, and no other thread reads or writes the
/// destination at the same time. If the product is added, the destination is initialised.
pub(super) unsafe fn product(
    kernel: Kernel,
    (m, k, n): (usize, usize, usize),
    (a, a_at): (&[f32], Matrix),
    (b, b_at): (&[f32], Matrix),
    (out, out_at): (Shared<f32>, Matrix),
    write: Write,
) -> bool {
    let values = k * n.next_multiple_of(LANES);
    let is_readable = b_at.column == 1 || b_at.row == 1;
    let Some(multiply) = for_kernel(kernel)
        .filter(|_| values <= MOST && is_readable && out_at.column == 1 && m > 0 && n > 0 && k > 0)
    else {
        return false;
    };
    let source = |values: &[f32], at: Matrix| Source {
        first: values[at.offset..].as_ptr(),
        row: at.row,
        column: at.column,
    };
    // SAFETY: as the caller promises.
    let first = unsafe { out.pointer(out_at.offset..out_at.end(m, n)) };
    let to = Target { first, stride: out_at.row, add: write == Write::Add };
    with_scratch(&RIGHT, (values * size_of::<f32>()).div_ceil(size_of::<Line>()), |scratch| {
        // SAFETY: the processor has the kernel's instructions; the rest is as the caller promises.
        unsafe {
            multiply((m, k, n), source(a, a_at), source(b, b_at), to, scratch.as_mut_ptr().cast())
        };
    });
    true
}

/// Number of f32 values in the widest register.
const LANES: usize = 16;

/// Returns the variant of an f32 kernel for small products; `None` if there is none for this
/// processor.
fn for_kernel(kernel: Kernel) -> Option<Multiply> {
    if !kernel.is_here() {
        return None;
    }
    match kernel {
        // Processors with bf16 instructions also have all instructions of AVX-512F.
        #[cfg(target_arch = "x86_64")]
        Kernel::Tiles | Kernel::Dots | Kernel::Fma512 => Some(avx512::multiply),
        #[cfg(target_arch = "x86_64")]
        Kernel::Fma256 => Some(avx2::multiply),
        #[cfg(target_arch = "aarch64")]
        Kernel::Neon => Some(neon::multiply),
        #[cfg(target_arch = "wasm32")]
        Kernel::Simd128 => Some(simd128::multiply),
        _ => None,
    }
}

/// Returns the right operand `(k, n)` in contiguous rows of whole registers, either in place or
/// copied to `scratch`. In `scratch`, values beyond the operand's columns are arbitrary.
///
/// # Safety
/// As for [`Multiply`].
#[inline(always)]
unsafe fn in_rows<V: Vector>((k, n): (usize, usize), b: Source, scratch: *mut f32) -> Source {
    if b.column == 1 && n.is_multiple_of(V::LANES) {
        return b;
    }
    let row = n.next_multiple_of(V::LANES);
    // SAFETY: as the caller promises.
    unsafe {
        for j in (0..n).step_by(V::LANES) {
            let count = (n - j).min(V::LANES);
            if b.column == 1 {
                for i in 0..k {
                    let whole = count == V::LANES;
                    let from = b.at(i, j);
                    let values = if whole { V::load(from) } else { V::load_some(from, count) };
                    values.store(scratch.add(i * row + j));
                }
                continue;
            }
            // Reads the last column again instead of columns beyond it.
            let column = |c: usize| j + c.min(count - 1);
            let whole = k - k % V::LANES;
            for i in (0..whole).step_by(V::LANES) {
                V::transpose(|c| b.at(i, column(c)), scratch.add(i * row + j), row);
            }
            for i in whole..k {
                for c in 0..V::LANES {
                    *scratch.add(i * row + j + c) = *b.at(i, column(c));
                }
            }
        }
    }
    Source { first: scratch, row, column: 1 }
}

/// Computes a block of results with `ROWS` rows, and as many columns as `VECTORS` registers hold.
/// Only the first `last` columns in the last of these registers are results; its further columns
/// are not written.
///
/// # Safety
/// As for [`Multiply`], for the rows and columns that begin at the pointers; `b` has contiguous
/// rows of whole registers.
#[inline(always)]
unsafe fn multiply_block<V: Vector, const ROWS: usize, const VECTORS: usize>(
    k: usize,
    a: Source,
    b: Source,
    to: Target,
    last: usize,
) {
    let is_part = |i: usize| i + 1 == VECTORS && last < V::LANES;
    // SAFETY: as the caller promises.
    unsafe {
        let mut sums = [[V::zero(); VECTORS]; ROWS];
        if to.add {
            for (row, sums) in sums.iter_mut().enumerate() {
                for (i, sum) in sums.iter_mut().enumerate() {
                    let from = to.first.add(row * to.stride + i * V::LANES);
                    *sum = if is_part(i) { V::load_some(from, last) } else { V::load(from) };
                }
            }
        }
        let rows: [*const f32; ROWS] = std::array::from_fn(|row| a.at(row, 0));
        for p in 0..k {
            let columns: [V; VECTORS] =
                std::array::from_fn(|i| V::load(b.at(p, 0).add(i * V::LANES)));
            for (row, sums) in rows.iter().zip(&mut sums) {
                let value = V::splat(*row.add(p * a.column));
                for (sum, columns) in sums.iter_mut().zip(columns) {
                    *sum = sum.plus_product(value, columns);
                }
            }
        }
        for (row, sums) in sums.into_iter().enumerate() {
            for (i, sum) in sums.into_iter().enumerate() {
                let to = to.first.add(row * to.stride + i * V::LANES);
                if is_part(i) {
                    sum.store_some(to, last)
                } else {
                    sum.store(to)
                };
            }
        }
    }
}

/// Defines the kernel for registers of one width; its blocks of results have at most `$most` rows.
macro_rules! kernel {
    ($name:ident, $feature:literal, $vector:ty, $most:literal: $($rows:literal)*) => {
        mod $name {
            use super::*;

            /// Multiplies small matrices.
            ///
            /// # Safety
            /// As for [`Multiply`](super::Multiply).
            #[target_feature(enable = $feature)]
            pub(super) unsafe fn multiply(
                (m, k, n): (usize, usize, usize),
                a: Source,
                b: Source,
                to: Target,
                scratch: *mut f32,
            ) {
                const LANES: usize = <$vector>::LANES;
                // SAFETY: as the caller promises.
                unsafe {
                    let b = in_rows::<$vector>((k, n), b, scratch);
                    for column in (0..n).step_by(2 * LANES) {
                        let b = Source { first: b.first.add(column), ..b };
                        let to = Target { first: to.first.add(column), ..to };
                        match n - column {
                            count @ ..=LANES => columns::<1>((m, k), a, b, to, count),
                            count => columns::<2>((m, k), a, b, to, (count - LANES).min(LANES)),
                        }
                    }
                }
            }

            /// Computes all rows of the columns that `VECTORS` registers hold; see
            /// [`multiply_block`] for `last`.
            #[inline]
            #[target_feature(enable = $feature)]
            unsafe fn columns<const VECTORS: usize>(
                (m, k): (usize, usize),
                a: Source,
                b: Source,
                to: Target,
                last: usize,
            ) {
                // The rows are divided into blocks of nearly equal size.
                let blocks = m.div_ceil($most);
                let mut row = 0;
                for block in 1..=blocks {
                    let end = block * m / blocks;
                    // SAFETY: as the caller promises.
                    unsafe {
                        let a = Source { first: a.at(row, 0), ..a };
                        let to = Target { first: to.first.add(row * to.stride), ..to };
                        match end - row {
                            $($rows => multiply_block::<$vector, $rows, VECTORS>(k, a, b, to, last),)*
                            _ => unreachable!("blocks have {} rows at most", $most),
                        }
                    }
                    row = end;
                }
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
kernel!(avx512, "avx512f", std::arch::x86_64::__m512, 8: 1 2 3 4 5 6 7 8);
#[cfg(target_arch = "x86_64")]
kernel!(avx2, "avx2,fma", std::arch::x86_64::__m256, 6: 1 2 3 4 5 6);
#[cfg(target_arch = "aarch64")]
kernel!(neon, "neon", std::arch::aarch64::float32x4_t, 8: 1 2 3 4 5 6 7 8);
#[cfg(target_arch = "wasm32")]
kernel!(simd128, "simd128", std::arch::wasm32::v128, 6: 1 2 3 4 5 6);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Counter;

    fn random(key: u64, count: usize) -> Vec<f32> {
        let counter = Counter::new(key);
        (0..count as u64).map(|i| counter.normal_at(i) as f32).collect()
    }

    /// Checks, for any position and orientation of the operands, that the results have the same
    /// bits as those of a simple loop. Also checks that nothing outside of the results is written.
    #[test]
    fn results_are_summed_in_order_and_nothing_else_is_touched() {
        const GAP: usize = 3;
        let shapes = [1, 2, 7, 8, 9, 14, 16, 17, 31, 32, 33, 40];
        let kernels = Kernel::ALL.into_iter().filter(|&kernel| for_kernel(kernel).is_some());
        for kernel in kernels {
            for (m, k, n) in shapes.into_iter().flat_map(|m| {
                shapes.into_iter().flat_map(move |k| shapes.into_iter().map(move |n| (m, k, n)))
            }) {
                // Number of values from the first element of an operand to its last, without a gap
                // at the end.
                let wide = |rows: usize, columns: usize| (rows - 1) * (columns + GAP) + columns;
                for (a_turned, b_turned, write) in [
                    (false, false, Write::Replace),
                    (true, false, Write::Add),
                    (false, true, Write::Add),
                    (true, true, Write::Replace),
                ] {
                    let operand = |key, turned: bool, rows: usize, columns: usize| {
                        let (rows, columns) =
                            if turned { (columns, rows) } else { (rows, columns) };
                        let at = Matrix::rows(columns + GAP);
                        (
                            random(key, wide(rows, columns)),
                            if turned { at.transposed() } else { at },
                        )
                    };
                    let ((a, a_at), (b, b_at)) =
                        (operand(1, a_turned, m, k), operand(2, b_turned, k, n));
                    let start = random(3, wide(m, n) + GAP);
                    let mut out = start.clone();
                    let to = (Shared::new(&mut out), Matrix::rows(n + GAP));
                    // SAFETY: the slices have all elements of the operands, and only this test uses
                    // `out`.
                    let is_done =
                        unsafe { product(kernel, (m, k, n), (&a, a_at), (&b, b_at), to, write) };
                    assert!(is_done, "{kernel:?} {m}×{k}×{n}");
                    for (at, (&found, &before)) in out.iter().zip(&start).enumerate() {
                        let (i, j) = (at / (n + GAP), at % (n + GAP));
                        let first = if j >= n || write == Write::Add { before } else { 0.0 };
                        let places = if j < n && i < m { 0..k } else { 0..0 };
                        let sum = places.fold(first, |sum, p| {
                            let a = a[i * a_at.row + p * a_at.column];
                            a.mul_add(b[p * b_at.row + j * b_at.column], sum)
                        });
                        assert!(
                            found.to_bits() == sum.to_bits(),
                            "{kernel:?} {m}×{k}×{n} {a_turned} {b_turned} {write:?}: {found} at \
                             {i}, {j}, in order {sum}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_large_or_lies_apart_is_left_to_others() {
        let (a, b) = (random(1, 400), random(2, 100 * 100));
        let mut out = vec![0.0; 400];
        let mut multiplies = |shape: (usize, usize, usize), b_at: Matrix, out_at: Matrix| {
            let (a, to) = ((a.as_slice(), Matrix::rows(shape.1)), (Shared::new(&mut out), out_at));
            // SAFETY: everything is in bounds, and only this test uses `out`.
            unsafe {
                product(
                    Kernel::best(crate::Products::F32),
                    shape,
                    a,
                    (&b, b_at),
                    to,
                    Write::Replace,
                )
            }
        };
        assert!(!multiplies((4, 100, 100), Matrix::rows(100), Matrix::rows(100)));
        assert!(!multiplies((4, 4, 4), Matrix { offset: 0, row: 8, column: 2 }, Matrix::rows(4)));
        assert!(!multiplies((4, 4, 4), Matrix::rows(4), Matrix::rows(4).transposed()));
    }
}
