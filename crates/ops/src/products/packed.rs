//! Operands that are packed once (copied to the order in which a kernel reads them), for many
//! products.

use super::operand::{Line, Operand, PANEL, Results};
use super::packing::{Multiply, Packing, pack};
use super::{Matrix, Threads};
use crate::shared::Write;
use std::ops::Range;

/// An operand that has been packed, for many products with the whole operand or with some of its
/// panels (groups of 32 rows or columns).
#[derive(Debug)]
pub(crate) struct Packed {
    lines: Vec<Line>,
    /// Number of rows (of a left operand) or columns (of a right operand).
    count: usize,
    panels: usize,
    steps: usize,
    packing: Packing,
}

impl Packed {
    /// Packs a left operand `(rows, depth)`, with its rows in panels of 32.
    pub(crate) fn left(
        (values, at): (&[f32], Matrix),
        rows: usize,
        depth: usize,
        how: (Packing, Threads),
    ) -> Self {
        Self::new(&Operand::left(values, at, rows, depth), how)
    }

    /// Packs a right operand `(depth, columns)`, with its columns in panels of 32.
    pub(crate) fn right(
        (values, at): (&[f32], Matrix),
        depth: usize,
        columns: usize,
        how: (Packing, Threads),
    ) -> Self {
        Self::new(&Operand::right(values, at, columns, depth), how)
    }

    fn new(operand: &Operand<'_>, (packing, threads): (Packing, Threads)) -> Self {
        let (panels, steps) = (operand.panels(), operand.steps());
        let mut lines = Line::zeroed(panels * steps * packing.step_lines());
        pack(operand, 0..panels, 0..steps, packing, &mut lines, threads);
        Self { lines, count: operand.count, panels, steps, packing }
    }

    /// Returns the number of columns of a right operand.
    pub(super) fn columns(&self) -> usize {
        self.count
    }

    pub(super) fn steps(&self) -> usize {
        self.steps
    }

    pub(super) fn packing(&self) -> Packing {
        self.packing
    }

    /// Returns the packed lines of all panels, one panel after the other.
    pub(super) fn all_lines(&self) -> &[Line] {
        &self.lines
    }

    /// Returns the number of panels of [`PANEL`] rows or columns.
    pub(crate) fn panels(&self) -> usize {
        self.panels
    }

    /// Returns the packed lines of one panel for a range of steps. A step has 32 indices of the
    /// summed dimension.
    fn lines(&self, panel: usize, steps: &Range<usize>) -> &[Line] {
        let step_lines = self.packing.step_lines();
        let start = (panel * self.steps + steps.start) * step_lines;
        &self.lines[start..start + steps.len() * step_lines]
    }
}

/// Products of packed operands, on the calling thread.
pub(crate) struct PackedProducts {
    packing: Packing,
    multiply: Multiply,
    scratch: Vec<Line>,
}

impl PackedProducts {
    pub(crate) fn new(packing: Packing) -> Self {
        Self { packing, multiply: Multiply::new(packing), scratch: Vec::new() }
    }

    /// Computes the product of some panels of `left` and some panels of `right`, which replaces the
    /// values of `out`. `out` is row-major, with the distance `stride` from row to row, and must
    /// have room for whole panels. A panel can extend beyond the last row or column of an operand;
    /// the results there are zero.
    pub(crate) fn multiply_panels(
        &self,
        left: (&Packed, Range<usize>),
        right: (&Packed, Range<usize>),
        out: &mut [f32],
        stride: usize,
    ) {
        assert!(left.0.steps == right.0.steps);
        let steps = 0..left.0.steps;
        self.blocks(
            left.1.len(),
            |row| left.0.lines(left.1.start + row, &steps),
            right,
            &steps,
            (out, stride),
            Write::Replace,
        );
    }

    /// Computes the product of `a (m, k)` and `k` consecutive rows of `right`. The first of these
    /// rows is the first row of the step with the index `from`. (A step has 32 rows.) Depending on
    /// `write`, the product replaces the values of `out` or is added to them. The left operand is
    /// packed for this product only, unless it already lies in memory in the packed order. `out` is
    /// as for [`Self::multiply_panels`].
    pub(crate) fn multiply_matrix(
        &mut self,
        (a, a_at): (&[f32], Matrix),
        (m, k): (usize, usize),
        (right, from): (&Packed, usize),
        (out, stride): (&mut [f32], usize),
        write: Write,
    ) {
        let left = &Operand::left(a, a_at, m, k);
        let steps = from..from + left.steps();
        let lines = left.steps() * self.packing.step_lines();
        let mut scratch = std::mem::take(&mut self.scratch);
        let packed = self.packing.lines_of(left).unwrap_or_else(|| {
            scratch.resize(scratch.len().max(left.panels() * lines), Line::ZERO);
            pack(left, 0..left.panels(), 0..left.steps(), self.packing, &mut scratch, Threads::One);
            &scratch
        });
        self.blocks(
            left.panels(),
            |row| &packed[row * lines..(row + 1) * lines],
            (right, 0..right.panels),
            &steps,
            (out, stride),
            write,
        );
        self.scratch = scratch;
    }

    fn blocks<'a>(
        &self,
        rows: usize,
        left: impl Fn(usize) -> &'a [Line],
        (right, columns): (&Packed, Range<usize>),
        steps: &Range<usize>,
        (out, stride): (&mut [f32], usize),
        write: Write,
    ) {
        assert!(
            right.packing == self.packing
                && columns.len() * PANEL <= stride
                && rows * PANEL * stride <= out.len()
        );
        for (j, column) in columns.enumerate() {
            let right = right.lines(column, steps);
            for i in 0..rows {
                let left = left(i);
                assert!(left.len() >= right.len());
                // SAFETY: by the assertion above, the left operand has as many lines as the right
                // one, which has those of all steps. By the assertion at the beginning of the
                // function, `out` has PANEL rows of PANEL values from `first` on.
                unsafe {
                    let first = out.as_mut_ptr().add(i * PANEL * stride + j * PANEL);
                    let to = Results { first, stride, rows: PANEL, add: write == Write::Add };
                    self.multiply.run(left, right, steps.len(), to);
                }
            }
        }
    }
}
