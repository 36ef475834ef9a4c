//! Operands of a product in tiles of bf16 pairs: the one layout that every bf16 kernel reads.
//!
//! A tile is 16 lines of 32 bf16 values. For a left operand a line is a row with 32 consecutive
//! values of the summed dimension. For a right operand a line is a *pair* of the summed dimension,
//! with the two values of each of 16 columns side by side, as dot-product instructions want them.
//! Two tiles make a panel of 32 rows or columns.
//!
//! An f32 value is either rounded to bf16, or split exactly into three bf16 parts (8 + 8 + 8 bits
//! of its 24), whose products of significance 2⁻¹⁶ and above reproduce an f32 product to f32's own
//! rounding.

use super::Matrix;

/// Rows or columns of a tile, and lines of it.
pub(super) const TILE: usize = 16;
/// Rows or columns of a panel.
pub(crate) const PANEL: usize = 2 * TILE;
/// Values of the summed dimension in a tile.
pub(crate) const DEPTH: usize = 32;

/// A cache line of bf16 values.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Line(pub(super) [u16; DEPTH]);

impl Line {
    pub(super) const ZERO: Self = Self([0; DEPTH]);
}

/// Lines of one panel at one depth step, for each part of the values.
pub(super) const STEP_LINES: usize = 2 * TILE;

/// Where the results of one panel times another are, or go.
#[derive(Clone, Copy)]
pub(super) struct Results {
    pub(super) first: *mut f32,
    /// From row to row.
    pub(super) stride: usize,
    /// Whether they are added to what is there.
    pub(super) add: bool,
}

/// Which operand a panel belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Left,
    Right,
}

/// An f32 operand seen as `count` rows (left) or columns (right) of `depth` values.
#[derive(Clone, Copy)]
pub(super) struct Operand<'a> {
    pub(super) values: &'a [f32],
    /// Where it starts.
    pub(super) offset: usize,
    /// Stride between rows (left) or columns (right).
    pub(super) outer: usize,
    /// Stride along the summed dimension.
    pub(super) inner: usize,
    pub(super) count: usize,
    pub(super) depth: usize,
    pub(super) side: Side,
}

impl<'a> Operand<'a> {
    pub(super) fn left(values: &'a [f32], at: Matrix, rows: usize, depth: usize) -> Self {
        Self {
            values,
            offset: at.offset,
            outer: at.row,
            inner: at.column,
            count: rows,
            depth,
            side: Side::Left,
        }
    }

    pub(super) fn right(values: &'a [f32], at: Matrix, columns: usize, depth: usize) -> Self {
        Self {
            values,
            offset: at.offset,
            outer: at.column,
            inner: at.row,
            count: columns,
            depth,
            side: Side::Right,
        }
    }

    /// Whether the packing kernels can read it: contiguous along one of its dimensions.
    pub(super) fn is_packable(&self) -> bool {
        self.inner == 1 || self.outer == 1
    }

    /// What lies at most `depth` values from `start` on along the summed dimension.
    pub(super) fn stretch(&self, start: usize, depth: usize) -> Self {
        Self {
            offset: self.offset + start * self.inner,
            depth: depth.min(self.depth - start),
            ..*self
        }
    }

    pub(super) fn panels(&self) -> usize {
        self.count.div_ceil(PANEL)
    }

    pub(super) fn steps(&self) -> usize {
        self.depth.div_ceil(DEPTH)
    }

    fn is_in_bounds(&self) -> bool {
        self.count == 0
            || self.depth == 0
            || self.offset + (self.count - 1) * self.outer + (self.depth - 1) * self.inner
                < self.values.len()
    }
}

/// Packs depth steps `steps` of one panel into `lines`: for each step, for each part, two tiles.
///
/// What lies outside the operand is zero.
pub(super) fn pack_panel(
    operand: &Operand<'_>,
    panel: usize,
    steps: std::ops::Range<usize>,
    parts: usize,
    lines: &mut [Line],
) {
    assert!(operand.is_in_bounds() && operand.is_packable() && (parts == 1 || parts == 3));
    assert!(lines.len() >= steps.len() * parts * STEP_LINES);
    #[cfg(target_arch = "x86_64")]
    if super::has_avx512_bf16() {
        // SAFETY: the features are there, and the assertions above are the function's
        // preconditions.
        unsafe {
            match parts {
                1 => avx512::pack_panel::<1>(operand, panel, steps, lines),
                _ => avx512::pack_panel::<3>(operand, panel, steps, lines),
            }
        }
        return;
    }
    portable_pack_panel(operand, panel, steps, parts, lines);
}

/// The same, one value at a time: the oracle of the vectorised version.
pub(super) fn portable_pack_panel(
    operand: &Operand<'_>,
    panel: usize,
    steps: std::ops::Range<usize>,
    parts: usize,
    lines: &mut [Line],
) {
    for (position, step) in steps.enumerate() {
        for half in 0..2 {
            for unit in 0..TILE {
                for depth in 0..DEPTH {
                    let (index, k) = (panel * PANEL + half * TILE + unit, step * DEPTH + depth);
                    let mut rest = if index < operand.count && k < operand.depth {
                        operand.values[operand.offset + index * operand.outer + k * operand.inner]
                    } else {
                        0.0
                    };
                    for part in 0..parts {
                        let value = half::bf16::from_f32(rest);
                        rest -= value.to_f32();
                        let tile = ((position * parts + part) * 2 + half) * TILE;
                        let (line, element) = match operand.side {
                            Side::Left => (unit, depth),
                            Side::Right => (depth / 2, 2 * unit + depth % 2),
                        };
                        lines[tile + line].0[element] = value.to_bits();
                    }
                }
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use super::{DEPTH, Line, Operand, PANEL, STEP_LINES, Side, TILE};
    use std::arch::x86_64::*;

    /// # Safety
    /// The processor has avx512f, avx512bw and avx512bf16; the operand is in bounds and packable;
    /// `lines` has room.
    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    pub(super) unsafe fn pack_panel<const PARTS: usize>(
        operand: &Operand<'_>,
        panel: usize,
        steps: std::ops::Range<usize>,
        lines: &mut [Line],
    ) {
        for (step, lines) in steps.zip(lines.chunks_exact_mut(PARTS * STEP_LINES)) {
            for half in 0..2 {
                let first = panel * PANEL + half * TILE;
                // SAFETY: the caller's promise.
                unsafe { pack_tile::<PARTS>(operand, first, step, half, lines) };
            }
        }
    }

    /// One tile of each part, from row or column `first` on.
    ///
    /// # Safety
    /// As [`pack_panel`].
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    unsafe fn pack_tile<const PARTS: usize>(
        operand: &Operand<'_>,
        first: usize,
        step: usize,
        half: usize,
        lines: &mut [Line],
    ) {
        let depth = operand.depth.saturating_sub(step * DEPTH).min(DEPTH);
        let count = operand.count.saturating_sub(first).min(TILE);
        let mut store = |part: usize, line: usize, value: __m512i| {
            let line = &mut lines[part * STEP_LINES + half * TILE + line];
            // SAFETY: a line is 64 bytes, aligned to 64.
            unsafe { _mm512_store_si512(std::ptr::from_mut(line).cast(), value) };
        };
        let mut tiles = [[_mm512_setzero_si512(); TILE]; PARTS];
        if operand.inner == 1 {
            let (low, high) = (mask(depth.min(TILE)), mask(depth.saturating_sub(TILE)));
            #[allow(clippy::needless_range_loop, reason = "one index for three arrays")]
            for unit in 0..TILE {
                let mut x = (_mm512_setzero_ps(), _mm512_setzero_ps());
                if unit < count {
                    // SAFETY: row `first + unit` exists and has `depth` values from this step on;
                    // the masks stop there.
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
            // The conversion puts the first line's sixteen values before the second's: pair them
            // up.
            let pairs = pair_up();
            #[allow(clippy::needless_range_loop, reason = "one index for three arrays")]
            for pair in 0..TILE {
                let line_mask = |line: usize| if line < depth { columns } else { 0 };
                // SAFETY: the masks leave out what is not within `depth` lines of `count` values.
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
                transpose(tile);
                for (line, value) in tile.iter().enumerate() {
                    store(part, line, *value);
                }
            }
        }
    }

    fn mask(count: usize) -> u16 {
        ((1u32 << count) - 1) as u16
    }

    /// Rounds 32 values to bf16; where there is more than one part, each further one rounds what
    /// the last left over.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    fn convert<const PARTS: usize>(mut x0: __m512, mut x1: __m512) -> [__m512i; PARTS] {
        std::array::from_fn(|part| {
            // SAFETY: both are 64 bytes of plain bits.
            let rounded: __m512i = unsafe { std::mem::transmute(_mm512_cvtne2ps_pbh(x1, x0)) };
            if part + 1 < PARTS {
                let widen = |half| {
                    _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(half)))
                };
                x0 = _mm512_sub_ps(x0, widen(_mm512_castsi512_si256(rounded)));
                x1 = _mm512_sub_ps(x1, widen(_mm512_extracti64x4_epi64::<1>(rounded)));
            }
            rounded
        })
    }

    /// `(a₀ … a₁₅ b₀ … b₁₅)` → `(a₀ b₀ a₁ b₁ …)`, as an index of 16-bit values.
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

    /// Transposes 16 × 16 values of 32 bits.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn transpose(m: &mut [__m512i; TILE]) {
        let zero = _mm512_setzero_si512();
        let (mut a, mut b) = ([zero; TILE], [zero; TILE]);
        for i in 0..8 {
            a[2 * i] = _mm512_unpacklo_epi32(m[2 * i], m[2 * i + 1]);
            a[2 * i + 1] = _mm512_unpackhi_epi32(m[2 * i], m[2 * i + 1]);
        }
        for i in 0..4 {
            b[4 * i] = _mm512_unpacklo_epi64(a[4 * i], a[4 * i + 2]);
            b[4 * i + 1] = _mm512_unpackhi_epi64(a[4 * i], a[4 * i + 2]);
            b[4 * i + 2] = _mm512_unpacklo_epi64(a[4 * i + 1], a[4 * i + 3]);
            b[4 * i + 3] = _mm512_unpackhi_epi64(a[4 * i + 1], a[4 * i + 3]);
        }
        // b[4i + j] holds, in lane l, column 4l + j of rows 4i … 4i + 3.
        for j in 0..4 {
            let low = _mm512_shuffle_i32x4::<0b10_00_10_00>(b[j], b[4 + j]);
            let high = _mm512_shuffle_i32x4::<0b11_01_11_01>(b[j], b[4 + j]);
            let low2 = _mm512_shuffle_i32x4::<0b10_00_10_00>(b[8 + j], b[12 + j]);
            let high2 = _mm512_shuffle_i32x4::<0b11_01_11_01>(b[8 + j], b[12 + j]);
            m[j] = _mm512_shuffle_i32x4::<0b10_00_10_00>(low, low2);
            m[8 + j] = _mm512_shuffle_i32x4::<0b11_01_11_01>(low, low2);
            m[4 + j] = _mm512_shuffle_i32x4::<0b10_00_10_00>(high, high2);
            m[12 + j] = _mm512_shuffle_i32x4::<0b11_01_11_01>(high, high2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Counter;

    #[test]
    fn both_orientations_and_sides_pack_as_the_oracle_does() {
        let counter = Counter::new(1);
        let values: Vec<f32> = (0..80 * 90).map(|i| counter.normal_at(i) as f32).collect();
        for (count, depth) in [(32, 32), (1, 1), (33, 70), (17, 31), (64, 65), (40, 16), (16, 17)] {
            for side in [Side::Left, Side::Right] {
                for (outer, inner) in [(80, 1), (1, 80)] {
                    let operand =
                        Operand { values: &values, offset: 3, outer, inner, count, depth, side };
                    for parts in [1, 3] {
                        for panel in 0..operand.panels() {
                            let size = operand.steps() * parts * STEP_LINES;
                            let (mut ours, mut oracle) =
                                (vec![Line([7; DEPTH]); size], vec![Line::ZERO; size]);
                            pack_panel(&operand, panel, 0..operand.steps(), parts, &mut ours);
                            portable_pack_panel(
                                &operand,
                                panel,
                                0..operand.steps(),
                                parts,
                                &mut oracle,
                            );
                            assert!(
                                ours.iter().zip(&oracle).all(|(a, b)| a.0 == b.0),
                                "{count} × {depth} {side:?} {outer}/{inner}, {parts} parts"
                            );
                        }
                    }
                }
            }
        }
    }
}
