//! Products by AVX-512 BF16. For each of sixteen columns, an instruction computes the dot product
//! of two pairs of bf16 values, and adds it to an f32 sum.

use super::tile::{STEP_LINES, TILE};
use crate::products::operand::{AHEAD, Line, Results, fetch_once};
use std::arch::x86_64::*;

/// Number of rows whose sums are held in registers at the same time.
const ROWS: usize = 8;

/// Computes `a · b` for two panels (32 rows and 32 columns), over `steps` steps of 32 indices of
/// the summed dimension. Depending on `results.add`, the product replaces the 32 × 32 results or is
/// added to them.
///
/// # Safety
/// The processor has avx512f and avx512bf16. `a` and `b` have `steps · STEP_LINES` lines, and
/// `results` has 32 rows of 32 values.
#[target_feature(enable = "avx512f,avx512bf16")]
pub(in crate::products) unsafe fn multiply(
    a: *const Line,
    b: *const Line,
    steps: usize,
    results: Results,
) {
    // SAFETY: as the caller promises.
    unsafe {
        if results.rows == 1 {
            return multiply_rows::<1>(a, b, steps, results, 0);
        }
        for first in (0..results.rows).step_by(ROWS) {
            multiply_rows::<ROWS>(a, b, steps, results, first);
        }
    }
}

/// Computes `COUNT` rows of [`multiply`], from the row `first` on. All of these rows must lie in
/// the same tile of 16 rows.
///
/// # Safety
/// As for [`multiply`].
#[inline]
#[target_feature(enable = "avx512f,avx512bf16")]
unsafe fn multiply_rows<const COUNT: usize>(
    a: *const Line,
    b: *const Line,
    steps: usize,
    Results { first: c, stride, add, .. }: Results,
    first: usize,
) {
    let (half, unit) = (first / TILE, first % TILE);
    let mut sums = [[_mm512_setzero_ps(); 2]; COUNT];
    // SAFETY: these rows of `c` exist, and all lines that are read belong to the `steps` steps of
    // the operands.
    unsafe {
        if add {
            for (row, sums) in sums.iter_mut().enumerate() {
                let at = c.add((first + row) * stride);
                *sums = [_mm512_loadu_ps(at), _mm512_loadu_ps(at.add(TILE))];
            }
        }
        for step in 0..steps {
            let a = a.add(step * STEP_LINES + half * TILE + unit).cast::<i32>();
            let b = b.add(step * STEP_LINES).cast::<__m512bh>();
            for pair in 0..TILE {
                if COUNT == 1 {
                    for tile in 0..2 {
                        fetch_once(b.wrapping_add(AHEAD + tile * TILE + pair).cast());
                    }
                }
                let (b0, b1) = (*b.add(pair), *b.add(TILE + pair));
                for (row, sums) in sums.iter_mut().enumerate() {
                    let both: __m512bh =
                        std::mem::transmute(_mm512_set1_epi32(*a.add(row * TILE + pair)));
                    sums[0] = _mm512_dpbf16_ps(sums[0], both, b0);
                    sums[1] = _mm512_dpbf16_ps(sums[1], both, b1);
                }
            }
        }
        for (row, sums) in sums.iter().enumerate() {
            let at = c.add((first + row) * stride);
            _mm512_storeu_ps(at, sums[0]);
            _mm512_storeu_ps(at.add(TILE), sums[1]);
        }
    }
}

/// Multiplies and adds on `SUMS` registers, `rounds` times, to measure the peak speed. Returns the
/// number of multiply-adds in one round.
///
/// # Safety
/// The processor has avx512f and avx512bf16.
#[target_feature(enable = "avx512f,avx512bf16")]
pub(in crate::products) unsafe fn multiply_registers<const SUMS: usize>(rounds: usize) -> usize {
    // SAFETY: both types are 64 bytes, for which any bits are valid.
    let factor: __m512bh =
        unsafe { std::mem::transmute(_mm512_set1_epi32(std::hint::black_box(0))) };
    let mut sums = [_mm512_setzero_ps(); SUMS];
    for _ in 0..rounds {
        for sum in &mut sums {
            *sum = _mm512_dpbf16_ps(*sum, factor, factor);
        }
    }
    std::hint::black_box(sums);
    SUMS * 2 * TILE
}
