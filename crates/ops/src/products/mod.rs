//! Matrix products on strided host slices: the one place that multiplies matrices on the CPU.
//!
//! Three kernels, chosen by what the processor has and by [`Products`]:
//! - [`Kernel::Tiles`]: Intel AMX, twenty times the rate of f32 multiply-adds in bf16. An f32
//!   product is made of six bf16 ones, on operands split exactly into three parts each ([`tile`]):
//!   as accurate as f32 arithmetic, and up to twice as fast;
//! - [`Kernel::Dots`]: AVX-512 BF16, for bf16 products alone;
//! - [`Kernel::Gemm`]: the `gemm` crate, everywhere; bf16 products round the operands first, which
//!   makes it the oracle.
//!
//! Results do not depend on the number of threads: rows and columns are split between them, and the
//! summed dimension only at places that the shape of the product fixes.

// Elsewhere no kernel packs its operands: the code for those that do compiles, and nothing calls
// it.
#![cfg_attr(not(target_arch = "x86_64"), allow(unreachable_code, unused_variables, dead_code))]

#[cfg(target_arch = "x86_64")]
mod amx;
mod blocked;
#[cfg(target_arch = "x86_64")]
mod dot;
mod fallback;
mod kernel;
mod tile;

use crate::float::Float;
use crate::parallel::CHUNK;
use crate::shared::{Shared, Write, filled};
pub(crate) use blocked::{Packed, PackedProducts};
use candle_core::{DType, Device};
use fallback::matmul;
pub use kernel::{Kernel, KernelError};
use rayon::prelude::*;
pub(crate) use tile::{DEPTH, PANEL};

/// How the operands of matrix products are rounded. Sums are in f32 always, and so is everything
/// that is not a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Products {
    /// Not at all.
    #[default]
    F32,
    /// To bf16: 8 significant bits.
    Bf16,
}

impl Products {
    /// Those of a model that computes in `dtype` on `device`. On the host, bf16 is a matter of the
    /// products alone; elsewhere of every operation, so that nothing is left for the products
    /// to round.
    #[must_use]
    pub fn of(dtype: DType, device: &Device) -> Self {
        if device.is_cpu() && dtype == DType::BF16 { Self::Bf16 } else { Self::F32 }
    }
}

/// A matrix inside a slice: element `(i, j)` is at `offset + i·row + j·column`.
#[derive(Debug, Clone, Copy)]
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
        if rows == 0 || columns == 0 {
            self.offset
        } else {
            self.offset + (rows - 1) * self.row + (columns - 1) * self.column + 1
        }
    }
}

/// Who computes a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Threads {
    /// Every thread of the pool: for a product that stands alone.
    All,
    /// The calling one: for many small products that run side by side.
    One,
}

#[cfg(target_arch = "x86_64")]
fn has_avx512_bf16() -> bool {
    std::arch::is_x86_feature_detected!("avx512f")
        && std::arch::is_x86_feature_detected!("avx512bw")
        && std::arch::is_x86_feature_detected!("avx512bf16")
}

/// `out (m, n) = a (m, k) · b (k, n)`, replacing or adding to what `out` holds.
pub(crate) fn product<T: Float>(
    shape: (usize, usize, usize),
    a: (&[T], Matrix),
    b: (&[T], Matrix),
    (out, out_at): (&mut [T], Matrix),
    write: Write,
    how: (Products, Threads),
) {
    // SAFETY: `out` is borrowed mutably, and initialised.
    unsafe { raw_product(shape, a, b, (Shared::new(out), out_at), write, how, None) };
}

/// What is done to some whole rows of a result, from the given one on, as soon as they are there.
pub(crate) type Finish<'a, T> = &'a (dyn Fn(usize, &mut [T]) + Sync);

/// `a (m, k) · b (k, n)`, row-major, on every thread; then `finish` on every row, once.
pub(crate) fn product_then<T: Float>(
    (m, k, n): (usize, usize, usize),
    a: (&[T], Matrix),
    b: Right<'_, T>,
    products: Products,
    finish: Option<Finish<'_, T>>,
) -> Vec<T> {
    let how = (products, Threads::All);
    let to = Matrix::rows(n);
    // SAFETY: the room is this function's alone, and the product writes all of it.
    let (mut out, is_finished) = unsafe {
        filled(m * n, |room| match b {
            Right::Plain(values, at) => {
                raw_product((m, k, n), a, (values, at), (room, to), Write::Replace, how, finish)
            }
            Right::Packed(packed) => packed_product((m, k, n), a, packed, room, products, finish),
        })
    };
    if let Some(finish) = finish.filter(|_| !is_finished) {
        let rows = (CHUNK / n.max(1)).max(1);
        out.par_chunks_mut(rows * n.max(1))
            .enumerate()
            .for_each(|(chunk, out)| finish(chunk * rows, out));
    }
    out
}

/// The right operand of a product.
#[derive(Clone, Copy)]
pub(crate) enum Right<'a, T> {
    /// As it lies in memory.
    Plain(&'a [T], Matrix),
    /// Packed before, for a kernel of this processor and for f32.
    Packed(&'a Packed),
}

/// As [`raw_product`], with all of `out` replaced.
///
/// # Safety
/// As [`raw_product`].
unsafe fn packed_product<T: Float>(
    (m, k, n): (usize, usize, usize),
    (a, a_at): (&[T], Matrix),
    b: &Packed,
    out: Shared<T>,
    products: Products,
    finish: Option<Finish<'_, T>>,
) -> bool {
    let (Some(a), Some(values)) = (T::as_f32(a), T::shared_f32(out)) else {
        unreachable!("only f32 is packed")
    };
    let left = tile::Operand::left(a, a_at, m, k);
    assert!(
        a_at.end(m, k) <= a.len()
            && left.is_packable()
            && b.columns() == n
            && m * n <= values.len()
    );
    if m == 0 || n == 0 {
        return false;
    }
    crate::profile::count_product(m, k, n);
    let to = blocked::Destination { values, offset: 0, stride: n, write: Write::Replace };
    let finish = finish.map(of_f32);
    let finish = finish.as_ref().map(|finish| finish as Finish<'_, f32>);
    // SAFETY: the caller's promise, and the extents by the assertion.
    unsafe {
        blocked::product_with_packed(&left, b, to, (Kernel::best(products), Threads::All), finish)
    }
}

/// `finish` for rows that are known to be f32.
fn of_f32<T: Float>(finish: Finish<'_, T>) -> impl Fn(usize, &mut [f32]) + Sync {
    move |row, out| {
        if let Some(out) = T::of_f32_mut(out) {
            finish(row, out);
        }
    }
}

/// Returns whether `finish` has been called for every row; otherwise it has been for none. It takes
/// a destination without gaps.
///
/// # Safety
/// Nobody else reads or writes `out` meanwhile, and where it is added to, it is initialised.
/// Afterwards it is.
pub(crate) unsafe fn raw_product<T: Float>(
    (m, k, n): (usize, usize, usize),
    (a, a_at): (&[T], Matrix),
    (b, b_at): (&[T], Matrix),
    (out, out_at): (Shared<T>, Matrix),
    write: Write,
    (products, threads): (Products, Threads),
    finish: Option<Finish<'_, T>>,
) -> bool {
    assert!(
        a_at.end(m, k) <= a.len() && b_at.end(k, n) <= b.len() && out_at.end(m, n) <= out.len()
    );
    if m == 0 || n == 0 {
        return false;
    }
    crate::profile::count_product(m, k, n);
    // SAFETY: the caller's promise.
    unsafe {
        match (T::as_f32(a), T::as_f32(b), T::shared_f32(out)) {
            (Some(a), Some(b), Some(out)) => {
                let kernel = match (products, threads) {
                    // Splitting operands in three does not pay for small products.
                    (Products::F32, Threads::One) => Kernel::Gemm,
                    _ => Kernel::best(products),
                };
                let finish = finish.map(of_f32);
                let finish = finish.as_ref().map(|finish| finish as Finish<'_, f32>);
                product_f32(
                    (m, k, n),
                    (a, a_at),
                    (b, b_at),
                    (out, out_at),
                    write,
                    (kernel, products, threads),
                    finish,
                )
            }
            _ => {
                matmul((m, k, n), (a, a_at), (b, b_at), (out, out_at), write, threads);
                false
            }
        }
    }
}

/// `a (m, k) · b (k, n)`, row-major, on every thread by a kernel of one's choice: for comparisons.
/// `None` where it does not serve.
///
/// # Panics
/// When the operands have other sizes.
#[must_use]
pub fn multiply(
    kernel: Kernel,
    products: Products,
    (m, k, n): (usize, usize, usize),
    a: &[f32],
    b: &[f32],
) -> Option<Vec<f32>> {
    assert!(a.len() == m * k && b.len() == k * n);
    let (a, b) = ((a, Matrix::rows(k)), (b, Matrix::rows(n)));
    let how = (kernel, products, Threads::All);
    // SAFETY: the room is this function's alone, and the product writes all of it.
    let multiply = || unsafe {
        filled(m * n, |room| {
            product_f32((m, k, n), a, b, (room, Matrix::rows(n)), Write::Replace, how, None)
        })
        .0
    };
    kernel.serves(products).then(multiply)
}

impl Packed {
    /// A left operand `(m, k)`: rows in panels.
    pub(crate) fn left(
        (values, at): (&[f32], Matrix),
        rows: usize,
        depth: usize,
        products: Products,
    ) -> Self {
        Self::new(&tile::Operand::left(values, at, rows, depth), products)
    }

    /// A right operand `(k, n)`: columns in panels.
    pub(crate) fn right(
        (values, at): (&[f32], Matrix),
        depth: usize,
        columns: usize,
        products: Products,
    ) -> Self {
        Self::new(&tile::Operand::right(values, at, columns, depth), products)
    }
}

impl PackedProducts {
    /// `out ← [out +] a (m, k) · right[from · DEPTH ..][.. k]`; `out` is row-major with a stride
    /// and has room for whole panels.
    pub(crate) fn of_matrix(
        &mut self,
        (a, a_at): (&[f32], Matrix),
        (m, k): (usize, usize),
        (right, from): (&Packed, usize),
        out: (&mut [f32], usize),
        write: Write,
    ) {
        self.of_operand(&tile::Operand::left(a, a_at, m, k), right, from, out, write);
    }
}

/// Whether `finish` has been called, as in [`raw_product`].
///
/// # Safety
/// As [`raw_product`].
unsafe fn product_f32(
    (m, k, n): (usize, usize, usize),
    (a, a_at): (&[f32], Matrix),
    (b, b_at): (&[f32], Matrix),
    (out, out_at): (Shared<f32>, Matrix),
    write: Write,
    (kernel, products, threads): (Kernel, Products, Threads),
    finish: Option<Finish<'_, f32>>,
) -> bool {
    let (left, right) = (tile::Operand::left(a, a_at, m, k), tile::Operand::right(b, b_at, n, k));
    // SAFETY: the caller's promise; `raw_product` has checked the extents.
    unsafe {
        if kernel != Kernel::Gemm && left.is_packable() && right.is_packable() && out_at.column == 1
        {
            let destination = blocked::Destination {
                values: out,
                offset: out_at.offset,
                stride: out_at.row,
                write,
            };
            return blocked::product(
                &left,
                &right,
                destination,
                (kernel, products, threads),
                finish,
            );
        }
        if products == Products::Bf16 {
            let (a, b) = (fallback::rounded(a, a_at, m, k), fallback::rounded(b, b_at, k, n));
            matmul(
                (m, k, n),
                (&a, Matrix::rows(k)),
                (&b, Matrix::rows(n)),
                (out, out_at),
                write,
                threads,
            );
        } else {
            matmul((m, k, n), (a, a_at), (b, b_at), (out, out_at), write, threads);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Counter;

    fn random(key: u64, count: usize) -> Vec<f32> {
        let counter = Counter::new(key);
        (0..count as u64).map(|i| counter.normal_at(i) as f32).collect()
    }

    /// Every kernel that this machine has, on shapes with every kind of edge, in every orientation.
    #[test]
    fn kernels_agree_with_f64() {
        for (m, k, n) in [
            (1, 1, 1),
            (5, 7, 3),
            (32, 32, 32),
            (33, 65, 31),
            (100, 130, 70),
            (3, 600, 200),
            (300, 40, 17),
            (64, 1300, 96),
        ] {
            let (a, b, start) = (random(1, m * k), random(2, k * n), random(3, m * n));
            for products in [Products::F32, Products::Bf16] {
                let round = |x: &f32| {
                    if products == Products::Bf16 {
                        half::bf16::from_f32(*x).to_f64()
                    } else {
                        f64::from(*x)
                    }
                };
                let (wide_a, wide_b): (Vec<f64>, Vec<f64>) =
                    (a.iter().map(round).collect(), b.iter().map(round).collect());
                for kernel in [Kernel::Tiles, Kernel::Dots, Kernel::Gemm]
                    .into_iter()
                    .filter(|kernel| kernel.serves(products))
                {
                    for (a_at, b_at, write) in [
                        (false, false, Write::Replace),
                        (true, false, Write::Add),
                        (false, true, Write::Add),
                        (true, true, Write::Replace),
                    ] {
                        let orient = |turned: bool, rows: usize, columns: usize| {
                            if turned {
                                Matrix::rows(rows).transposed()
                            } else {
                                Matrix::rows(columns)
                            }
                        };
                        let (a_at, b_at) = (orient(a_at, m, k), orient(b_at, k, n));
                        let mut expected: Vec<f64> = start
                            .iter()
                            .map(|&x| if write == Write::Add { f64::from(x) } else { 0.0 })
                            .collect();
                        for i in 0..m {
                            for j in 0..n {
                                for p in 0..k {
                                    expected[i * n + j] += wide_a[i * a_at.row + p * a_at.column]
                                        * wide_b[p * b_at.row + j * b_at.column];
                                }
                            }
                        }
                        for threads in [Threads::All, Threads::One] {
                            let mut out = start.clone();
                            let shape = (m, k, n);
                            let to = (Shared::new(&mut out), Matrix::rows(n));
                            // SAFETY: `out` is this test's alone.
                            unsafe {
                                product_f32(
                                    shape,
                                    (&a, a_at),
                                    (&b, b_at),
                                    to,
                                    write,
                                    (kernel, products, threads),
                                    None,
                                )
                            };
                            let error = out
                                .iter()
                                .zip(&expected)
                                .map(|(x, y)| (f64::from(*x) - y).abs())
                                .fold(0.0, f64::max);
                            // Without AVX-512 the `gemm` crate sums all of `k` one after the other:
                            // 5.2e-6 at most here.
                            let bound = if kernel == Kernel::Gemm { 6e-6 } else { 3e-6 }
                                * (k as f64).sqrt().max(2.0);
                            assert!(
                                error < bound,
                                "{m}×{k}×{n} {products:?} {kernel:?} {write:?} {threads:?}: off by {error}, bound {bound}"
                            );
                        }
                    }
                }
            }
        }
    }

    /// An f32 product made of bf16 parts is no less accurate than one of f32 multiply-adds.
    #[test]
    fn split_products_are_as_accurate_as_f32() {
        if !Kernel::Tiles.serves(Products::F32) {
            return;
        }
        for k in [32, 128, 512, 2048] {
            let (m, n) = (64, 64);
            // Positive values: the case in which a bias of the split would add up.
            for shift in [0.0, 1.0] {
                let (a, b) = (random(4, m * k), random(5, k * n));
                let (a, b): (Vec<f32>, Vec<f32>) = (
                    a.iter().map(|x| x.abs() * shift + x * (1.0 - shift)).collect(),
                    b.iter().map(|x| x.abs() * shift + x * (1.0 - shift)).collect(),
                );
                let error = |kernel| {
                    let mut out = vec![0.0; m * n];
                    let (a, b) = ((a.as_slice(), Matrix::rows(k)), (b.as_slice(), Matrix::rows(n)));
                    let to = (Shared::new(&mut out), Matrix::rows(n));
                    // SAFETY: `out` is this test's alone.
                    unsafe {
                        product_f32(
                            (m, k, n),
                            a,
                            b,
                            to,
                            Write::Replace,
                            (kernel, Products::F32, Threads::One),
                            None,
                        )
                    };
                    let mut sum = 0.0;
                    for i in 0..m {
                        for j in 0..n {
                            let exact: f64 = (0..k)
                                .map(|p| f64::from(a.0[i * k + p]) * f64::from(b.0[p * n + j]))
                                .sum();
                            sum += (f64::from(out[i * n + j]) - exact).powi(2);
                        }
                    }
                    (sum / (m * n) as f64).sqrt()
                };
                let (split, plain) = (error(Kernel::Tiles), error(Kernel::Gemm));
                assert!(
                    split <= 1.5 * plain,
                    "k {k}, shift {shift}: root mean square error {split:e} against {plain:e}"
                );
            }
        }
    }
}
