//! Operands of matrix products, as kernels see them: rows or columns in panels of 32, and the
//! summed dimension in steps of 32.

use super::Matrix;
use std::ops::Range;

/// Number of rows or columns in a panel.
pub(crate) const PANEL: usize = 32;
/// Number of indices of the summed dimension in a step.
pub(crate) const DEPTH: usize = 32;

/// A cache line of packed values: 32 bf16 values, or 16 f32 values.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Line(pub(super) [u16; 32]);

// SAFETY: zeros are numbers.
unsafe impl bytemuck::Zeroable for Line {}

impl Line {
    pub(super) const ZERO: Self = Self([0; 32]);

    /// Returns `count` lines of zeros. New memory of the system is already zero, so it is not
    /// written here, and its pages are mapped by the threads that write it.
    pub(super) fn zeroed(count: usize) -> Vec<Self> {
        bytemuck::zeroed_vec(count)
    }
}

/// Destination of the product of two panels.
#[derive(Clone, Copy)]
pub(super) struct Results {
    pub(super) first: *mut f32,
    /// Distance from one row of the destination to the next.
    pub(super) stride: usize,
    /// Number of rows that are needed. In the other rows of the panel, results are arbitrary.
    pub(super) rows: usize,
    /// Whether results are added to the values in the destination.
    pub(super) add: bool,
}

/// Side of a product to which a panel belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Left,
    Right,
}

/// An f32 operand: `count` rows (of a left operand) or columns (of a right operand), each of
/// `depth` values.
#[derive(Clone, Copy)]
pub(super) struct Operand<'a> {
    pub(super) values: &'a [f32],
    /// Index of the first value in `values`.
    pub(super) offset: usize,
    /// Distance from one row (left) or column (right) to the next.
    pub(super) outer: usize,
    /// Distance from one value to the next along the summed dimension.
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

    /// Whether the kernels that pack can read the operand: it must be contiguous along one of its
    /// dimensions.
    pub(super) fn is_packable(&self) -> bool {
        self.inner == 1 || self.outer == 1
    }

    /// Returns the part of the operand from index `start` of the summed dimension on, with at most
    /// `depth` values.
    pub(super) fn stretch(&self, start: usize, depth: usize) -> Self {
        Self {
            offset: self.offset + start * self.inner,
            depth: depth.min(self.depth - start),
            ..*self
        }
    }

    /// Returns the part of the operand that consists of these panels.
    pub(super) fn narrow(&self, panels: &Range<usize>) -> Self {
        let first = (panels.start * PANEL).min(self.count);
        let end = (panels.end * PANEL).min(self.count);
        Self { offset: self.offset + first * self.outer, count: end - first, ..*self }
    }

    pub(super) fn panels(&self) -> usize {
        self.count.div_ceil(PANEL)
    }

    pub(super) fn steps(&self) -> usize {
        self.depth.div_ceil(DEPTH)
    }

    /// Prefetches the values of a step of a panel, as far as they exist. The hardware does not
    /// prefetch them, because rows in memory are too short and too far apart.
    pub(super) fn prefetch(&self, (panel, step): (usize, usize)) {
        let (first, start) = (panel * PANEL, step * DEPTH);
        if first >= self.count || start >= self.depth {
            return;
        }
        let (count, depth) = ((self.count - first).min(PANEL), (self.depth - start).min(DEPTH));
        let (rows, stride, width) = match self.inner {
            1 => (count, self.outer, depth),
            _ => (depth, self.inner, count),
        };
        let first = self.offset + first * self.outer + start * self.inner;
        for row in 0..rows {
            let row = self.values.as_ptr().wrapping_add(first + row * stride);
            for line in (0..width).step_by(size_of::<Line>() / size_of::<f32>()) {
                fetch(row.wrapping_add(line));
            }
        }
    }

    pub(super) fn is_in_bounds(&self) -> bool {
        self.count == 0
            || self.depth == 0
            || self.offset + (self.count - 1) * self.outer + (self.depth - 1) * self.inner
                < self.values.len()
    }
}

/// Defines a function that prefetches the cache line of a value, on processors that support this.
/// `$x86` is the hint for the instruction of x86-64, and `$arm` the hint for the instruction of
/// ARMv8.
macro_rules! fetch {
    ($(#[$about:meta])* $visible:vis fn $name:ident: $x86:ident, $arm:literal) => {
        $(#[$about])*
        #[inline(always)]
        $visible fn $name(value: *const f32) {
            #[cfg(target_arch = "x86_64")]
            {
                use std::arch::x86_64::{$x86, _mm_prefetch};
                // SAFETY: every x86-64 processor has the instruction, which accesses no memory.
                unsafe { _mm_prefetch::<$x86>(value.cast()) };
            }
            #[cfg(target_arch = "aarch64")]
            // SAFETY: as above, for every ARMv8 processor.
            unsafe {
                std::arch::asm!(
                    concat!("prfm ", $arm, ", [{}]"),
                    in(reg) value,
                    options(nostack, readonly)
                );
            }
            #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
            let _ = value;
        }
    };
}

fetch! {
    /// Prefetches a value that is needed soon into the first-level cache.
    pub(crate) fn fetch: _MM_HINT_T0, "pldl1keep"
}
fetch! {
    /// Prefetches a value into the second-level cache.
    pub(super) fn fetch_later: _MM_HINT_T1, "pldl2keep"
}
fetch! {
    /// Prefetches a value that is read only once, so that it displaces no other data from the
    /// caches.
    pub(super) fn fetch_once: _MM_HINT_NTA, "pldl1strm"
}

/// How many lines ahead a kernel prefetches the right operand if the left operand has only one row.
/// Then most of the time is spent waiting for these lines, because hardware prefetchers stop at
/// every page of 4 KiB.
pub(super) const AHEAD: usize = 32;

#[cfg(test)]
impl Operand<'_> {
    /// Returns the value of the row or column `index` at index `k` of the summed dimension; zero
    /// outside of the operand.
    pub(super) fn value(&self, index: usize, k: usize) -> f32 {
        if index < self.count && k < self.depth {
            self.values[self.offset + index * self.outer + k * self.inner]
        } else {
            0.0
        }
    }

    /// Calls `test` with operands of many sizes, on both sides and in both orientations. Some fill
    /// whole panels and steps, and others do not. `values` must have at least 7,200 elements.
    pub(super) fn with_every_kind(values: &[f32], test: impl Fn(&Operand<'_>)) {
        for (count, depth) in [(32, 32), (1, 1), (33, 70), (17, 31), (64, 65), (40, 16), (16, 17)] {
            for side in [Side::Left, Side::Right] {
                for (outer, inner) in [(80, 1), (1, 80)] {
                    test(&Operand { values, offset: 3, outer, inner, count, depth, side });
                }
            }
        }
    }
}

impl std::fmt::Debug for Operand<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { outer, inner, count, depth, side, .. } = self;
        write!(f, "{side:?} operand of {count} × {depth}, strides {outer} and {inner}")
    }
}
