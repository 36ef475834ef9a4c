//! Loops around the instructions of int8 kernels, written once and compiled for each kernel.

use super::QUAD;
use super::parts::{Block, Parts};
use super::quantised::{inverse_of, rounded, scale_of};
#[allow(unused_imports, reason = "some processors have none but the plain loop")]
use super::sums::{self as registers, Sum};

/// Implements [`Parts::quantise`]: rounds a row to int8, converts each value by `stored` and writes
/// it to `to`. Returns the scale.
///
/// # Safety
/// `to` has room for as many activations as `row` has values.
#[inline(always)]
pub(super) unsafe fn quantise<T: Copy>(row: &[f32], to: *mut u8, stored: impl Fn(u32) -> T) -> f32 {
    let scale = scale_of(row);
    let inverse = inverse_of(scale);
    for (k, &value) in row.iter().enumerate() {
        // SAFETY: as the caller promises.
        unsafe { to.cast::<T>().add(k).write_unaligned(stored(rounded(value, inverse))) };
    }
    scale
}

/// Multiplies all rows of a block: as many at a time as fit in registers, and fewer at the end.
/// Writes scaled results in f32 if `RESULTS` is [`SCALED`] or, in tests, the sums in i32.
///
/// # Safety
/// The processor has the instructions of `V`. The pointers are as described at [`Block`], with
/// panels of `VECTORS · COLUMNS` columns.
#[inline(always)]
pub(super) unsafe fn all_rows<
    V: Sum,
    const VECTORS: usize,
    const ROWS: usize,
    const RESULTS: bool,
>(
    all: &Block,
) {
    let mut row = 0;
    while row < all.rows {
        let rest = all.rows - row;
        // SAFETY: at least that many rows are left.
        row += unsafe {
            match rest {
                _ if rest >= ROWS => some_rows::<V, VECTORS, ROWS, RESULTS>(all, row),
                4.. => some_rows::<V, VECTORS, 4, RESULTS>(all, row),
                2.. => some_rows::<V, VECTORS, 2, RESULTS>(all, row),
                _ => some_rows::<V, VECTORS, 1, RESULTS>(all, row),
            }
        };
    }
}

/// Value of `RESULTS` that makes [`all_rows`] write scaled results in f32.
pub(super) const SCALED: bool = true;
/// Value of `RESULTS` that makes [`all_rows`] write sums in i32.
#[cfg(test)]
pub(super) const SUMS: bool = false;

/// Multiplies `ROWS` rows, from the row `first` on, and returns `ROWS`. The body has no closures,
/// because closures would be compiled without the kernel's instructions.
///
/// # Safety
/// As for [`all_rows`]; these rows exist.
#[inline(always)]
unsafe fn some_rows<V: Sum, const VECTORS: usize, const ROWS: usize, const RESULTS: bool>(
    all: &Block,
    first: usize,
) -> usize {
    let &Block { left, stride, right, quads, starts, row_scales, scales, to, to_stride, .. } = all;
    let width = VECTORS * V::COLUMNS;
    // SAFETY: as the caller promises.
    unsafe {
        let left = left.add(first * stride);
        let mut sums = [[V::start(starts); VECTORS]; ROWS];
        for sums in &mut sums {
            for (i, sum) in sums.iter_mut().enumerate() {
                *sum = V::start(starts.add(i * V::COLUMNS));
            }
        }
        for quad in 0..quads {
            let right = right.add(quad * width * QUAD);
            let mut weights = [V::weights(right); VECTORS];
            for (i, weights) in weights.iter_mut().enumerate() {
                *weights = V::weights(right.add(i * V::COLUMNS * QUAD));
            }
            for (row, sums) in sums.iter_mut().enumerate() {
                let activations = left.add(row * stride).cast::<V::Activation>();
                let activations = V::quad(activations.add(quad * QUAD));
                for (sum, weights) in sums.iter_mut().zip(weights) {
                    *sum = sum.plus(activations, weights);
                }
            }
        }
        for (row, sums) in sums.into_iter().enumerate() {
            let (to, row_scale) = (to.add((first + row) * to_stride), row_scales.add(first + row));
            for (i, sum) in sums.into_iter().enumerate() {
                let column = i * V::COLUMNS;
                if RESULTS == SCALED {
                    sum.scale(scales.add(column), *row_scale, to.add(column));
                } else {
                    sum.store(to.add(column).cast());
                }
            }
        }
    }
    ROWS
}

/// Defines the kernel for one kind of registers; it multiplies at most `$rows` rows at a time.
#[allow(unused_macros, reason = "some processors have none but the plain loop")]
macro_rules! kernel {
    ($name:ident, $($feature:literal,)? $sum:ty, $rows:literal by $vectors:literal) => {
        pub(super) mod $name {
            use super::*;
            use crate::products::int8::loops::{self, all_rows};

            pub(in super::super) const PARTS: Parts = Parts {
                width: $vectors * <$sum>::COLUMNS,
                activation_bytes: size_of::<<$sum as Sum>::Activation>(),
                shift: <$sum>::SHIFT,
                quantise,
                products,
                #[cfg(test)]
                sums,
            };

            /// Rounds and stores a row.
            ///
            /// # Safety
            /// The processor has the features; otherwise as for `loops::quantise`.
            $(#[target_feature(enable = $feature)])?
            unsafe fn quantise(row: &[f32], to: *mut u8) -> f32 {
                // SAFETY: as the caller promises.
                unsafe { loops::quantise(row, to, <$sum>::stored) }
            }

            /// Computes scaled results in f32.
            ///
            /// # Safety
            /// The processor has the features; otherwise as for `all_rows`.
            $(#[target_feature(enable = $feature)])?
            unsafe fn products(all: &Block) {
                // SAFETY: as the caller promises.
                unsafe { all_rows::<$sum, $vectors, $rows, { loops::SCALED }>(all) }
            }

            /// Computes sums in i32.
            ///
            /// # Safety
            /// The processor has the features; otherwise as for `all_rows`.
            #[cfg(test)]
            $(#[target_feature(enable = $feature)])?
            unsafe fn sums(all: &Block) {
                // SAFETY: as the caller promises.
                unsafe { all_rows::<$sum, $vectors, $rows, { loops::SUMS }>(all) }
            }
        }
    };
}

#[cfg(test)]
pub(super) use kernel;

#[cfg(target_arch = "x86_64")]
kernel!(vnni512, "avx512f,avx512bw,avx512vnni", registers::Vnni512, 12 by 2);
#[cfg(target_arch = "x86_64")]
kernel!(vnni256, "avx2,avxvnni", registers::Vnni256, 6 by 2);
#[cfg(target_arch = "x86_64")]
kernel!(words512, "avx512f,avx512bw", registers::Words512, 12 by 2);
#[cfg(target_arch = "x86_64")]
kernel!(words256, "avx2", registers::Words256, 6 by 1);
#[cfg(target_arch = "aarch64")]
kernel!(neon_dot, "neon,dotprod", registers::NeonDot, 6 by 4);
#[cfg(target_arch = "aarch64")]
kernel!(neon, "neon", registers::Neon, 4 by 4);
#[cfg(target_arch = "wasm32")]
kernel!(simd128, "simd128", registers::Simd128, 4 by 2);

/// A plain loop: the reference for tests of the other kernels.
pub(super) mod plain {
    use super::*;

    const WIDTH: usize = 8;

    pub(in super::super) const PARTS: Parts = Parts {
        width: WIDTH,
        activation_bytes: size_of::<i8>(),
        shift: 0,
        quantise,
        products,
        #[cfg(test)]
        sums,
    };

    /// Implements [`Parts::quantise`].
    ///
    /// # Safety
    /// As for [`Parts::quantise`].
    unsafe fn quantise(row: &[f32], to: *mut u8) -> f32 {
        // SAFETY: as the caller promises.
        unsafe { super::quantise(row, to, |bits| bits as i8) }
    }

    /// Implements [`Parts::products`].
    ///
    /// # Safety
    /// As for [`Parts::products`].
    unsafe fn products(all: &Block) {
        for row in 0..all.rows {
            // SAFETY: as the caller promises, here and below.
            let sums = unsafe { row_sums(all, row) };
            for (column, sum) in sums.into_iter().enumerate() {
                // SAFETY: as above.
                unsafe {
                    let result = sum as f32 * *all.scales.add(column) * *all.row_scales.add(row);
                    all.to.add(row * all.to_stride + column).write(result);
                }
            }
        }
    }

    /// Implements [`Parts::sums`].
    ///
    /// # Safety
    /// As for [`Parts::sums`].
    #[cfg(test)]
    unsafe fn sums(all: &Block) {
        for row in 0..all.rows {
            // SAFETY: as the caller promises.
            unsafe {
                let to = all.to.add(row * all.to_stride).cast::<[i32; WIDTH]>();
                to.write(row_sums(all, row));
            }
        }
    }

    /// Computes the sums of one row, one for each column of the panel.
    ///
    /// # Safety
    /// As for [`Parts::products`]; the row exists.
    unsafe fn row_sums(all: &Block, row: usize) -> [i32; WIDTH] {
        let mut sums = [0_i32; WIDTH];
        for k in 0..all.quads * QUAD {
            // SAFETY: as the caller promises, rows and panels have that many values.
            let (activation, weights) = unsafe {
                let panel = all.right.add(k / QUAD * WIDTH * QUAD + k % QUAD);
                (*all.left.add(row * all.stride + k).cast::<i8>(), panel)
            };
            for (column, sum) in sums.iter_mut().enumerate() {
                // SAFETY: as above.
                let weight = unsafe { *weights.add(column * QUAD) };
                *sum += i32::from(activation) * i32::from(weight);
            }
        }
        sums
    }
}
