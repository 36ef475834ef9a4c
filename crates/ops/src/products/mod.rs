//! Matrix products on the host, of matrices in slices, with any strides. The fused operations of
//! this crate multiply with them; operations that are composed of Candle's operations use Candle's
//! products.
//!
//! The processor and [`Products`] determine the [`Kernel`]:
//! - [`Kernel::Tiles`]: Intel AMX, whose rate in bf16 is twenty times that of f32 multiply-adds.
//!   For an f32 product, each operand is split exactly into three bf16 parts, and six bf16 products
//!   of these parts are added. This is as accurate as f32 arithmetic, and up to twice as fast;
//! - [`Kernel::Dots`]: AVX-512 BF16, only for bf16 products;
//! - [`Kernel::Fma512`], [`Kernel::Fma256`], [`Kernel::Neon`]: f32 multiply-adds, with registers of
//!   different widths; for bf16 products, operands are rounded when they are packed;
//! - [`Kernel::Simd128`]: like these, but in WebAssembly, which has no fused multiply-add, so that
//!   the product of two numbers is rounded before it is added;
//! - [`Kernel::Gemm`]: the `gemm` crate, for f64, for processors without these instructions, for
//!   products on one thread that are too large for [`small`], and as a reference for tests.
//!
//! All kernels but the last pack their operands (copy them to the order in which they are read),
//! and share the code in [`blocked`]. If packing would not pay, because a product is small, the
//! same instructions read the operands in place: [`small`]. Products of int8 weights, for decoding,
//! have separate kernels: [`int8`]. Products of f32 values and a matrix in bf16 convert the matrix
//! in pieces: [`held`].
//!
//! Results do not depend on the number of threads. Rows and columns are divided among threads,
//! which does not change how an element is summed. If the summed dimension is divided too, the
//! division depends only on the shape of the product.

// On all other processors, no kernel packs its operands. The code for kernels that pack is compiled
// but not used.
#![cfg_attr(
    not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "wasm32")),
    allow(unreachable_code, unused_variables, dead_code)
)]

mod blocked;
mod fallback;
mod held;
pub mod int8;
mod job;
mod kernels;
mod operand;
mod packed;
mod packing;
mod peak;
mod scratch;
mod small;

use crate::claims::claim;
use crate::float::Float;
use crate::parallel::CHUNK;
use crate::profile::{even, region};
use crate::shared::{Shared, Write, filled};
pub(crate) use blocked::LARGEST_PACK;
use candle_core::{DType, Device};
use fallback::matmul;
pub(crate) use held::{Held, is_held, product_onto};
pub use kernels::{Kernel, KernelError};
use operand::Operand;
pub(crate) use operand::{DEPTH, PANEL, fetch};
pub(crate) use packed::{Packed, PackedProducts};
pub(crate) use packing::Packing;
pub use peak::{multiply_adds_on_registers, peak_rate, products_in_one};
use rayon::prelude::*;

/// Type to which the operands of matrix products are rounded. Sums, and everything that is not a
/// product, are always computed in f32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Products {
    /// No rounding.
    #[default]
    F32,
    /// Rounding to bf16, which has 8 significant bits.
    Bf16,
}

impl Products {
    /// Returns the products for a model that computes in `dtype` on `device`. On the host, bf16
    /// applies only to the operands of products. On other devices, every operation computes in
    /// `dtype`, so operands need no further rounding.
    #[must_use]
    pub fn for_model(dtype: DType, device: &Device) -> Self {
        if device.is_cpu() && dtype == DType::BF16 { Self::Bf16 } else { Self::F32 }
    }
}

/// Describes a matrix in a slice: element `(i, j)` has the index `offset + i·row + j·column`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Matrix {
    pub(crate) offset: usize,
    pub(crate) row: usize,
    pub(crate) column: usize,
}

impl Matrix {
    /// Describes a row-major matrix; `width` is the distance from one row to the next.
    pub(crate) const fn rows(width: usize) -> Self {
        Self { offset: 0, row: width, column: 1 }
    }

    pub(crate) const fn at(self, offset: usize) -> Self {
        Self { offset, ..self }
    }

    /// Describes the transpose of this matrix, in the same slice.
    pub(crate) const fn transposed(self) -> Self {
        Self { row: self.column, column: self.row, ..self }
    }

    /// Returns the indices of all elements, row by row.
    fn elements(self, rows: usize, columns: usize) -> impl Iterator<Item = usize> {
        let of_row =
            move |i| (0..columns).map(move |j| self.offset + i * self.row + j * self.column);
        (0..rows).flat_map(of_row)
    }

    /// Returns the index after the last element; 0 if there are no elements, even if the offset is
    /// after the end of the slice.
    const fn end(&self, rows: usize, columns: usize) -> usize {
        if rows == 0 || columns == 0 {
            0
        } else {
            self.offset + (rows - 1) * self.row + (columns - 1) * self.column + 1
        }
    }
}

/// Threads that compute a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Threads {
    /// Every thread of the pool: for a single large product.
    All,
    /// Only the calling thread: for small products, many of which run in parallel.
    One,
}

#[cfg(target_arch = "x86_64")]
fn has_avx512_bf16() -> bool {
    std::arch::is_x86_feature_detected!("avx512f")
        && std::arch::is_x86_feature_detected!("avx512bw")
        && std::arch::is_x86_feature_detected!("avx512bf16")
}

/// Computes `a (m, k) · b (k, n)`. Depending on `write`, the product replaces `out (m, n)` or is
/// added to it.
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

/// Function that processes whole rows of a result as soon as they are complete. It gets the index
/// of the first of these rows, and their values.
pub(crate) type Finish<'a, T> = &'a (dyn Fn(usize, &mut [T]) + Sync);

/// Computes `a (m, k) · b (k, n)`, row-major, on all threads. If `finish` is given, each row of the
/// result is passed to it exactly once.
pub(crate) fn product_then<T: Float>(
    (m, k, n): (usize, usize, usize),
    a: (&[T], Matrix),
    b: Right<'_, T>,
    products: Products,
    finish: Option<Finish<'_, T>>,
) -> Vec<T> {
    // SAFETY: only this function uses the memory, and the product writes all of it.
    unsafe { filled(m * n, |room| product_into((m, k, n), a, b, room, products, finish)).0 }
}

/// Like [`product_then`], but writes the result to `room`, which has room for `m · n` values. This
/// memory need not be initialised before the call, and is initialised after it.
///
/// # Safety
/// No other thread reads or writes `room` at the same time.
pub(crate) unsafe fn product_into<T: Float>(
    (m, k, n): (usize, usize, usize),
    a: (&[T], Matrix),
    b: Right<'_, T>,
    room: Shared<T>,
    products: Products,
    finish: Option<Finish<'_, T>>,
) {
    let how = (products, Threads::All);
    let to = Matrix::rows(n);
    // SAFETY: as the caller promises.
    let is_finished = unsafe {
        match b {
            Right::Plain(values, at) => {
                raw_product((m, k, n), a, (values, at), (room, to), Write::Replace, how, finish)
            }
            Right::Packed(packed) => packed_product((m, k, n), a, packed, room, finish),
            Right::Unpacked(weight) => unpacked_product((m, k, n), a, weight, room),
            Right::Int8(weights) => int8_product((m, k, n), a, weights, room, finish),
            Right::Held(matrix) => {
                let to = (room, to);
                held::held_product((m, k, n), a, matrix, to, Write::Replace, products);
                false
            }
        }
    };
    if let Some(finish) = finish.filter(|_| !is_finished) {
        let rows = (CHUNK / n.max(1)).max(1);
        let chunks = m.div_ceil(rows);
        region(even(chunks), || {
            (0..chunks).into_par_iter().for_each(|chunk| {
                let (first, end) = (chunk * rows, ((chunk + 1) * rows).min(m));
                // SAFETY: each chunk has its own rows, which the product has written.
                finish(first, unsafe { room.range(first * n..end * n) });
            });
        });
    }
}

/// Right operand of a product.
#[derive(Clone, Copy)]
pub(crate) enum Right<'a, T> {
    /// Elements in any order that a [`Matrix`] describes.
    Plain(&'a [T], Matrix),
    /// Packed for a kernel of this processor; only for f32.
    Packed(&'a Packed),
    /// Packed for this product, some of it at a time; only for f32.
    Unpacked(Unpacked<'a>),
    /// Rounded to int8 and packed for a kernel of this processor; only for f32.
    Int8(&'a int8::PackedInt8),
    /// Stored in bf16, and constant: no gradient is computed for it.
    Held(Held<'a>),
}

/// A weight `(O, I)`, row-major, whose transpose is packed for each product. Results have the same
/// bits as products with the packed weight.
#[derive(Clone, Copy)]
pub(crate) struct Unpacked<'a> {
    pub(crate) values: &'a [f32],
    pub(crate) packing: Packing,
}

/// Like [`raw_product`], but with an operand that is packed for this product; the product replaces
/// all of `out`.
///
/// # Safety
/// As for [`raw_product`].
unsafe fn unpacked_product<T: Float>(
    (m, k, n): (usize, usize, usize),
    (a, a_at): (&[T], Matrix),
    b: Unpacked<'_>,
    out: Shared<T>,
) -> bool {
    let (Some(a), Some(values)) = (T::as_f32(a), T::shared_f32(out)) else {
        unreachable!("only f32 is packed")
    };
    let left = Operand::left(a, a_at, m, k);
    let right = Operand::right(b.values, Matrix::rows(k).transposed(), n, k);
    assert!(a_at.end(m, k) <= a.len() && b.values.len() == k * n && m * n <= values.len());
    assert!(left.is_packable() && right.is_packable());
    if m > 0 && n > 0 {
        crate::profile::count_product(m, k, n);
        let to = blocked::Destination { values, offset: 0, stride: n, write: Write::Replace };
        // SAFETY: as the caller promises; the extents were checked by the assertions.
        unsafe { blocked::product_with_unpacked(&left, &right, to, b.packing) };
    }
    false
}

/// Like [`raw_product`], but with int8 weights; the product replaces all of `out`.
///
/// # Safety
/// As for [`raw_product`].
unsafe fn int8_product<T: Float>(
    (m, k, n): (usize, usize, usize),
    (a, a_at): (&[T], Matrix),
    b: &int8::PackedInt8,
    out: Shared<T>,
    finish: Option<Finish<'_, T>>,
) -> bool {
    let (Some(a), Some(out)) = (T::as_f32(a), T::shared_f32(out)) else {
        unreachable!("only f32 is multiplied by int8")
    };
    assert!((b.inputs(), b.outputs()) == (k, n) && (a_at.row, a_at.column) == (k, 1));
    let finish = finish.map(finish_f32);
    let finish = finish.as_ref().map(|finish| finish as Finish<'_, f32>);
    // SAFETY: as the caller promises.
    unsafe { int8::product(&a[a_at.offset..a_at.offset + m * k], m, b, out, finish) }
}

/// Like [`raw_product`], but with a packed operand; the product replaces all of `out`.
///
/// # Safety
/// As for [`raw_product`].
unsafe fn packed_product<T: Float>(
    (m, k, n): (usize, usize, usize),
    (a, a_at): (&[T], Matrix),
    b: &Packed,
    out: Shared<T>,
    finish: Option<Finish<'_, T>>,
) -> bool {
    let (Some(a), Some(values)) = (T::as_f32(a), T::shared_f32(out)) else {
        unreachable!("only f32 is packed")
    };
    let left = Operand::left(a, a_at, m, k);
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
    let finish = finish.map(finish_f32);
    let finish = finish.as_ref().map(|finish| finish as Finish<'_, f32>);
    // SAFETY: as the caller promises; the extents were checked by the assertion.
    unsafe { blocked::product_with_packed(&left, b, to, Threads::All, finish) }
}

/// Turns `finish` into a function of f32 rows, which does nothing if `T` is another type.
fn finish_f32<T: Float>(finish: Finish<'_, T>) -> impl Fn(usize, &mut [f32]) + Sync {
    move |row, out| {
        if let Some(out) = T::from_f32_mut(out) {
            finish(row, out);
        }
    }
}

/// Computes a product. Returns `true` if `finish` has been called for every row, and `false` if it
/// has not been called at all. If `finish` is given, there must be no gaps between rows in the
/// destination.
///
/// # Safety
/// No other thread reads or writes `out` at the same time. If the product is added, `out` must be
/// initialised before the call. After the call, `out` is initialised in any case.
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
    // If k is 0, the operands have no elements, and their offsets may be after the end.
    let (a_at, b_at) = if k == 0 { (a_at.at(0), b_at.at(0)) } else { (a_at, b_at) };
    crate::profile::count_product(m, k, n);
    if cfg!(feature = "claims") {
        out_at.elements(m, n).for_each(|element| claim(out.address(element), 1));
    }
    // SAFETY: as the caller promises.
    unsafe {
        match (T::as_f32(a), T::as_f32(b), T::shared_f32(out)) {
            (Some(a), Some(b), Some(out)) => {
                let mut kernel = Kernel::best(products);
                if (products, threads) == (Products::F32, Threads::One) {
                    if small::product(kernel, (m, k, n), (a, a_at), (b, b_at), (out, out_at), write)
                    {
                        return false;
                    }
                    // Products on a single thread are small. If one is too large for
                    // `small::product`, packing would still not pay, so `gemm` computes it.
                    kernel = Kernel::Gemm;
                }
                let finish = finish.map(finish_f32);
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

/// An operand of [`multiply`]: a row-major matrix, or the transpose of one.
#[derive(Debug, Clone, Copy)]
pub struct Factor<'a> {
    /// Elements of the matrix, or of its transpose.
    pub values: &'a [f32],
    /// Whether `values` contains the transpose of the operand, row-major.
    pub transposed: bool,
}

/// Computes `out (m, n) = a (m, k) · b (k, n)` on all threads with the given kernel. Meant for
/// comparisons of kernels. Returns whether the kernel supports the product; if not, nothing is
/// computed.
///
/// # Panics
/// If the sizes of the operands do not match.
#[must_use]
pub fn multiply(
    (kernel, products): (Kernel, Products),
    (m, k, n): (usize, usize, usize),
    a: Factor<'_>,
    b: Factor<'_>,
    out: &mut [f32],
) -> bool {
    assert!(a.values.len() == m * k && b.values.len() == k * n && out.len() == m * n);
    let at = |factor: Factor<'_>, rows, columns| match factor.transposed {
        true => Matrix::rows(rows).transposed(),
        false => Matrix::rows(columns),
    };
    let (a, b) = ((a.values, at(a, m, k)), (b.values, at(b, k, n)));
    if kernel.serves(products) {
        let (to, how) = ((Shared::new(out), Matrix::rows(n)), (kernel, products, Threads::All));
        // SAFETY: `out` is borrowed mutably.
        unsafe { product_f32((m, k, n), a, b, to, Write::Replace, how, None) };
    }
    kernel.serves(products)
}

/// Computes a product in f32. Returns whether `finish` has been called, like [`raw_product`].
///
/// # Safety
/// As for [`raw_product`].
unsafe fn product_f32(
    (m, k, n): (usize, usize, usize),
    (a, a_at): (&[f32], Matrix),
    (b, b_at): (&[f32], Matrix),
    (out, out_at): (Shared<f32>, Matrix),
    write: Write,
    (kernel, products, threads): (Kernel, Products, Threads),
    finish: Option<Finish<'_, f32>>,
) -> bool {
    let (left, right) = (Operand::left(a, a_at, m, k), Operand::right(b, b_at, n, k));
    // SAFETY: as the caller promises; `raw_product` has checked the extents.
    unsafe {
        if let Some(packing) = Packing::for_kernel(kernel, products)
            && left.is_packable()
            && right.is_packable()
            && out_at.column == 1
        {
            let destination = blocked::Destination {
                values: out,
                offset: out_at.offset,
                stride: out_at.row,
                write,
            };
            return blocked::product(&left, &right, destination, (packing, threads), finish);
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
mod tests;
