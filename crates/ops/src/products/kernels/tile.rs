//! Packs operands into tiles of pairs of bf16 values, which the bf16 kernels read.
//!
//! A tile is 16 lines of 32 bf16 values. In a left operand, a line is a row, with 32 consecutive
//! values of the summed dimension. In a right operand, a line has the values of 16 columns at two
//! consecutive indices of the summed dimension. The two values of a column (a *pair*) are side by
//! side, as dot-product instructions require. Two tiles make a panel of 32 rows or columns.
//!
//! An f32 value is either rounded to bf16, or split exactly into three bf16 parts (its 24
//! significant bits into 8 + 8 + 8). In the second case, a product of two values is the sum of the
//! products of their parts. Products of parts that are below 2⁻²⁴ of the whole product are omitted,
//! which leaves six; these suffice for the accuracy of f32.

use super::vector::transpose_16;
use crate::products::operand::{DEPTH, Line, Operand, PANEL, Side};
use std::arch::x86_64::*;

/// Number of rows or columns of a tile, and also number of its lines.
pub(in crate::products) const TILE: usize = PANEL / 2;
/// Number of lines of one step (32 indices of the summed dimension) of a panel, for each bf16 part.
pub(in crate::products) const STEP_LINES: usize = 2 * TILE;

/// Packs one step of one panel into `lines`: two tiles for each of `parts` bf16 parts (1 or 3).
/// Values outside the operand are zero.
///
/// # Safety
/// The processor has avx512f, avx512bw and avx512bf16. The operand is in bounds and packable, and
/// `lines` has room for the tiles.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
pub(in crate::products) unsafe fn pack_step(
    operand: &Operand<'_>,
    panel: usize,
    step: usize,
    parts: usize,
    lines: &mut [Line],
) {
    for half in 0..2 {
        let first = panel * PANEL + half * TILE;
        let is_whole = first + TILE <= operand.count && (step + 1) * DEPTH <= operand.depth;
        // SAFETY: as the caller promises.
        unsafe {
            match (parts, is_whole) {
                (1, true) => pack_tile::<1, true>(operand, first, step, half, lines),
                (1, false) => pack_tile::<1, false>(operand, first, step, half, lines),
                (_, true) => pack_tile::<3, true>(operand, first, step, half, lines),
                (_, false) => pack_tile::<3, false>(operand, first, step, half, lines),
            }
        }
    }
}

/// Packs one tile for each part, from the row or column `first` on. If `WHOLE` is true, the tile
/// lies inside the operand, as most tiles do, and is read without masks.
///
/// # Safety
/// As for [`pack_step`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
unsafe fn pack_tile<const PARTS: usize, const WHOLE: bool>(
    operand: &Operand<'_>,
    first: usize,
    step: usize,
    half: usize,
    lines: &mut [Line],
) {
    let (depth, count) = match WHOLE {
        true => (DEPTH, TILE),
        false => (
            operand.depth.saturating_sub(step * DEPTH).min(DEPTH),
            operand.count.saturating_sub(first).min(TILE),
        ),
    };
    let mut store = |part: usize, line: usize, value: __m512i| {
        let line = &mut lines[part * STEP_LINES + half * TILE + line];
        // SAFETY: a line is 64 bytes, and its address is a multiple of 64.
        unsafe { _mm512_store_si512(std::ptr::from_mut(line).cast(), value) };
    };
    let mut tiles = [[_mm512_setzero_si512(); TILE]; PARTS];
    if operand.inner == 1 {
        let (low, high) = (mask(depth.min(TILE)), mask(depth.saturating_sub(TILE)));
        #[allow(clippy::needless_range_loop, reason = "one index for three arrays")]
        for unit in 0..TILE {
            let mut x = (_mm512_setzero_ps(), _mm512_setzero_ps());
            if unit < count {
                // SAFETY: row `first + unit` exists and has `depth` values from this step on,
                // beyond which the masks prevent reads.
                x = unsafe {
                    let row = operand
                        .values
                        .as_ptr()
                        .add(operand.offset + (first + unit) * operand.outer + step * DEPTH);
                    (
                        _mm512_maskz_loadu_ps(low, row),
                        _mm512_maskz_loadu_ps(high, row.wrapping_add(TILE)),
                    )
                };
            }
            for (part, value) in convert::<PARTS>(x.0, x.1).into_iter().enumerate() {
                if operand.side == Side::Left {
                    store(part, unit, value);
                } else {
                    tiles[part][unit] = value;
                }
            }
        }
    } else {
        let (columns, start) = (mask(count), if count > 0 { first } else { 0 });
        // The conversion puts the sixteen values of the first line before those of the second line;
        // here they are interleaved.
        let pairs = pair_up();
        #[allow(clippy::needless_range_loop, reason = "one index for three arrays")]
        for pair in 0..TILE {
            let line_mask = |line: usize| if line < depth { columns } else { 0 };
            // SAFETY: the masks prevent reads beyond `depth` lines of `count` values.
            let (x0, x1) = unsafe {
                let row = operand.values.as_ptr().wrapping_add(
                    operand.offset + (step * DEPTH + 2 * pair) * operand.inner + start,
                );
                let second = row.wrapping_add(operand.inner);
                (
                    _mm512_maskz_loadu_ps(line_mask(2 * pair), row),
                    _mm512_maskz_loadu_ps(line_mask(2 * pair + 1), second),
                )
            };
            for (part, value) in convert::<PARTS>(x0, x1).into_iter().enumerate() {
                let value = _mm512_permutexvar_epi16(pairs, value);
                if operand.side == Side::Right {
                    store(part, pair, value);
                } else {
                    tiles[part][pair] = value;
                }
            }
        }
    }
    if (operand.inner == 1) == (operand.side == Side::Right) {
        for (part, tile) in tiles.iter_mut().enumerate() {
            transpose_16(tile);
            for (line, value) in tile.iter().enumerate() {
                store(part, line, *value);
            }
        }
    }
}

fn mask(count: usize) -> u16 {
    ((1u32 << count) - 1) as u16
}

/// Returns the bf16 parts of 32 values. Part 0 has the rounded values. Each further part has the
/// rounded rest: the values minus the sums of the parts before it.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
fn convert<const PARTS: usize>(mut x0: __m512, mut x1: __m512) -> [__m512i; PARTS] {
    std::array::from_fn(|part| {
        // SAFETY: both types are 64 bytes, for which any bits are valid.
        let rounded: __m512i = unsafe { std::mem::transmute(_mm512_cvtne2ps_pbh(x1, x0)) };
        if part + 1 < PARTS {
            let widen =
                |half| _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(half)));
            x0 = _mm512_sub_ps(x0, widen(_mm512_castsi512_si256(rounded)));
            x1 = _mm512_sub_ps(x1, widen(_mm512_extracti64x4_epi64::<1>(rounded)));
        }
        rounded
    })
}

/// Returns the indices that reorder 16-bit values `(a₀ … a₁₅ b₀ … b₁₅)` to `(a₀ b₀ a₁ b₁ …)`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn pair_up() -> __m512i {
    const INDEX: [u16; 32] = {
        let mut index = [0; 32];
        let mut i = 0;
        while i < 16 {
            index[2 * i] = i as u16;
            index[2 * i + 1] = 16 + i as u16;
            i += 1;
        }
        index
    };
    // SAFETY: the array is 64 bytes.
    unsafe { _mm512_loadu_si512(INDEX.as_ptr().cast()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Counter;

    /// Reference for tests: packs one value at a time.
    fn oracle(operand: &Operand<'_>, panel: usize, step: usize, parts: usize, lines: &mut [Line]) {
        for half in 0..2 {
            for unit in 0..TILE {
                for depth in 0..DEPTH {
                    let (index, k) = (panel * PANEL + half * TILE + unit, step * DEPTH + depth);
                    let mut rest = operand.value(index, k);
                    for part in 0..parts {
                        let value = half::bf16::from_f32(rest);
                        rest -= value.to_f32();
                        let (line, element) = match operand.side {
                            Side::Left => (unit, depth),
                            Side::Right => (depth / 2, 2 * unit + depth % 2),
                        };
                        lines[(part * 2 + half) * TILE + line].0[element] = value.to_bits();
                    }
                }
            }
        }
    }

    #[test]
    fn both_orientations_and_sides_pack_as_the_oracle_does() {
        if !crate::products::has_avx512_bf16() {
            return;
        }
        let counter = Counter::new(1);
        let values: Vec<f32> = (0..80 * 90).map(|i| counter.normal_at(i) as f32).collect();
        Operand::with_every_kind(&values, |operand| {
            for parts in [1, 3] {
                for panel in 0..operand.panels() {
                    for step in 0..operand.steps() {
                        let mut ours = vec![Line([7; DEPTH]); parts * STEP_LINES];
                        let mut theirs = vec![Line::ZERO; parts * STEP_LINES];
                        // SAFETY: the features are available, and the panel and the step exist.
                        unsafe { pack_step(operand, panel, step, parts, &mut ours) };
                        oracle(operand, panel, step, parts, &mut theirs);
                        assert!(
                            ours.iter().zip(&theirs).all(|(a, b)| a.0 == b.0),
                            "{operand:?}: panel {panel}, step {step}, {parts} parts"
                        );
                    }
                }
            }
        });
    }
}
