//! Products with a matrix that is held in bf16, such as a frozen weight.
//!
//! **Decision.** Pieces of the matrix are converted to f32 just before they are multiplied. So the
//! product takes memory for only [`PIECE`] converted values. With every kernel, the result equals
//! the product with an f32 matrix of the same values. Only sums that are divided between pieces are
//! rounded differently. The conversion costs about a thirtieth of a product with a thousand rows.
//! The alternative would be kernels that read bf16, one for each kind of processor. They would have
//! to round the other operand to bf16 as well, or would be no faster.

use super::{Matrix, Products, Right, Threads, product, raw_product};
use crate::float::Float;
use crate::host::Host;
use crate::parallel::CHUNK;
use crate::profile::{even, region};
use crate::shared::{Shared, Write};
use candle_core::{DType, Result, Tensor};
use half::bf16;
use rayon::prelude::*;

/// Number of values that are converted at a time: in f32 they fit in a cache of 4 MiB.
const PIECE: usize = 1 << 20;

/// A row-major matrix in bf16, used as the right operand of a product.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Held<'a> {
    values: &'a [bf16],
    width: usize,
    /// Whether the operand is the transpose of the row-major matrix.
    is_transposed: bool,
}

/// Whether `matrix` is a bf16 constant on the host. Operations in f32 or f64 can use such a matrix
/// without a converted copy of the whole.
pub(crate) fn is_held(matrix: &Tensor) -> bool {
    matrix.dtype() == DType::BF16 && matrix.device().is_cpu() && !matrix.track_op()
}

impl<'a, T: Float> Right<'a, T> {
    /// Makes an operand of the row-major matrix in `host`, whose rows have `width` values, or of
    /// its transpose. The values have the type `T` or bf16.
    ///
    /// # Errors
    /// If the elements are of another type.
    pub(crate) fn from_row_major(
        host: &'a Host<'_>,
        width: usize,
        is_transposed: bool,
    ) -> Result<Self> {
        if host.dtype() == DType::BF16 {
            let values = host.elements::<bf16>()?;
            return Ok(Self::Held(Held { values, width, is_transposed }));
        }
        let at = Matrix::rows(width);
        let at = if is_transposed { at.transposed() } else { at };
        Ok(Self::Plain(host.elements::<T>()?, at))
    }
}

/// Computes `a (m, k) · b (k, n)` on all threads. Depending on `write`, the product replaces
/// `out (m, n)` or is added to it. `b` must not be packed (copied to a kernel's order).
pub(crate) fn product_onto<T: Float>(
    shape: (usize, usize, usize),
    a: (&[T], Matrix),
    b: Right<'_, T>,
    (out, out_at): (&mut [T], Matrix),
    write: Write,
    products: Products,
) {
    match b {
        Right::Plain(values, at) => {
            product(shape, a, (values, at), (out, out_at), write, (products, Threads::All));
        }
        // SAFETY: `out` is borrowed mutably, and initialised.
        Right::Held(held) => unsafe {
            held_product(shape, a, held, (Shared::new(out), out_at), write, products);
        },
        Right::Packed(_) | Right::Unpacked(_) | Right::Int8(_) => {
            unreachable!("a packed operand replaces its result")
        }
    }
}

/// Computes a product with a matrix that is held in bf16, for some rows of the matrix at a time. If
/// the operand is the transpose of the matrix, each of these rows gives a column of the result.
/// Otherwise each of them contributes to all results.
///
/// # Safety
/// As for [`raw_product`].
pub(super) unsafe fn held_product<T: Float>(
    (m, k, n): (usize, usize, usize),
    (a, a_at): (&[T], Matrix),
    held: Held<'_>,
    (out, out_at): (Shared<T>, Matrix),
    write: Write,
    products: Products,
) {
    let Held { values, width, is_transposed } = held;
    let (rows, columns) = if is_transposed { (n, k) } else { (k, n) };
    assert!(width == columns && values.len() == rows * width);
    let how = (products, Threads::All);
    let some = (PIECE / width.max(1)).max(1);
    // `max(1)` gives at least one round: if the matrix has no rows, the sums are empty, but their
    // value 0 must still be written.
    for first in (0..rows.max(1)).step_by(some) {
        let count = some.min(rows - first);
        let wide = widened::<T>(&values[first * width..(first + count) * width]);
        // SAFETY: as the caller promises; each piece writes its own columns, or adds to those of
        // the piece before.
        unsafe {
            if is_transposed {
                let b = (wide.as_slice(), Matrix::rows(width).transposed());
                let to = out_at.at(out_at.offset + first * out_at.column);
                raw_product((m, k, count), (a, a_at), b, (out, to), write, how, None);
            } else {
                let a_at = a_at.at(a_at.offset + first * a_at.column);
                let b = (wide.as_slice(), Matrix::rows(width));
                let write = if first == 0 { write } else { Write::Add };
                raw_product((m, count, n), (a, a_at), b, (out, out_at), write, how, None);
            }
        }
    }
}

/// Converts the values to `T`.
fn widened<T: Float>(values: &[bf16]) -> Vec<T> {
    let mut wide = vec![T::default(); values.len()];
    region(even(values.len().div_ceil(CHUNK)), || {
        wide.par_chunks_mut(CHUNK).zip(values.par_chunks(CHUNK)).for_each(|(wide, values)| {
            wide.iter_mut().zip(values).for_each(|(wide, &value)| *wide = T::widened(value));
        });
    });
    wide
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::products::product_then;
    use crate::rng::Counter;

    /// Checks that a product equals the product with the same values in f32, bit by bit if no sum
    /// is divided between pieces.
    #[test]
    fn products_are_those_of_the_values_in_f32() {
        let random = |count: usize, key| -> Vec<f32> {
            let counter = Counter::new(key);
            (0..count as u64).map(|i| counter.normal_at(i) as f32).collect()
        };
        // In the last case, the matrix has two pieces.
        for (rows, inputs, outputs) in [(1, 3, 5), (40, 64, 33), (7, 1100, 1000)] {
            let held: Vec<bf16> =
                random(inputs * outputs, 2).into_iter().map(bf16::from_f32).collect();
            let wide: Vec<f32> = held.iter().map(|value| value.to_f32()).collect();
            let at = Matrix::rows(inputs);
            for is_transposed in [true, false] {
                let (k, n) = if is_transposed { (inputs, outputs) } else { (outputs, inputs) };
                let at = if is_transposed { at.transposed() } else { at };
                let (shape, x) = ((rows, k, n), random(rows * k, 1));
                let (left, plain) = ((x.as_slice(), Matrix::rows(k)), Right::Plain(&wide, at));
                let right = Right::Held(Held { values: &held, width: inputs, is_transposed });
                let theirs = product_then(shape, left, plain, Products::F32, None);
                let ours = product_then(shape, left, right, Products::F32, None);
                let mut twice = ours.clone();
                let to = (twice.as_mut_slice(), Matrix::rows(n));
                product_onto(shape, left, right, to, Write::Add, Products::F32);
                let bound = if k * n > PIECE && !is_transposed { 1e-5 } else { 0.0 };
                for ((ours, theirs), twice) in ours.iter().zip(&theirs).zip(&twice) {
                    let size = theirs.abs() + (k as f32).sqrt();
                    assert!((ours - theirs).abs() <= bound * size, "{ours} {theirs}");
                    assert!((twice - 2.0 * theirs).abs() <= 1e-5 * size, "{twice} {theirs}");
                }
            }
        }
    }
}
