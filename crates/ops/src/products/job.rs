//! The part of a matrix product that one task computes. It multiplies some panels of 32 rows of the
//! left operand by some panels of 32 columns of the right operand. Both operands are packed (copied
//! to the order in which a kernel reads them).

use super::Threads;
use super::operand::{Line, Operand, PANEL, Results};
use super::packing::{Multiply, Packing, pack};
use super::scratch::{LEFT, with_scratch};
use crate::shared::{Shared, Write};
use std::ops::Range;

/// A product whose operands are packed, computed in blocks of results, one after the other.
pub(super) struct Job<'a> {
    pub(super) left: &'a Operand<'a>,
    pub(super) right: &'a [Line],
    pub(super) columns: usize,
    pub(super) packing: Packing,
    pub(super) write: Write,
    pub(super) offset: usize,
    pub(super) stride: usize,
}

impl Job<'_> {
    /// Multiplies the rows of some panels of the left operand by the columns of some panels of the
    /// right operand.
    pub(super) fn run(&self, rows: Range<usize>, columns: Range<usize>, out: &Shared<f32>) {
        let (steps, step_lines) = (self.left.steps(), self.packing.step_lines());
        let block_steps = self.packing.block().1.min(steps.max(1));
        let multiply = Multiply::new(self.packing);
        with_scratch(&LEFT, rows.len() * block_steps * step_lines, |packed| {
            // `max(1)` gives at least one round: if the depth is zero, the product still has to
            // write zeros.
            for start in (0..steps.max(1)).step_by(block_steps) {
                let depth = start..(start + block_steps).min(steps);
                let lines = depth.len() * step_lines;
                pack(self.left, rows.clone(), depth.clone(), self.packing, packed, Threads::One);
                let add = self.write == Write::Add || start > 0;
                for column in columns.clone() {
                    let right = &self.right[(column * steps + start) * step_lines..][..lines];
                    for (i, row) in rows.clone().enumerate() {
                        let next = if row + 1 < rows.end {
                            (row + 1, column)
                        } else {
                            (rows.start, column + 1)
                        };
                        self.prefetch_results(next, out);
                        self.block(
                            &multiply,
                            &packed[i * lines..][..lines],
                            right,
                            depth.len(),
                            (row, column),
                            add,
                            out,
                        );
                    }
                }
            }
        });
    }

    /// Prefetches the memory of a block of results while the block before it is computed. Otherwise
    /// the next block would have to wait for this memory: its rows are too far apart for the
    /// hardware to prefetch them. For bf16 products, which are very fast, prefetching would cost as
    /// much time as it saves.
    fn prefetch_results(&self, (row, column): (usize, usize), out: &Shared<f32>) {
        if self.packing.is_bf16() || column * PANEL >= self.columns {
            return;
        }
        let (first, end) = (row * PANEL, ((row + 1) * PANEL).min(self.left.count));
        for row in first..end {
            let start = self.offset + row * self.stride + column * PANEL;
            super::operand::fetch_later(out.address(start));
            super::operand::fetch_later(out.address(start + PANEL / 2));
        }
    }

    /// Computes a block of 32 × 32 results, or the part of it that lies in the destination.
    #[allow(
        clippy::too_many_arguments,
        reason = "two operands and where their block begins and goes; a struct would be made per block"
    )]
    fn block(
        &self,
        multiply: &Multiply,
        left: &[Line],
        right: &[Line],
        steps: usize,
        (row, column): (usize, usize),
        add: bool,
        out: &Shared<f32>,
    ) {
        assert!(
            left.len() >= steps * self.packing.step_lines()
                && right.len() >= steps * self.packing.step_lines()
        );
        let (rows, columns) = (
            (self.left.count - row * PANEL).min(PANEL),
            (self.columns - column * PANEL).min(PANEL),
        );
        let start = self.offset + row * PANEL * self.stride + column * PANEL;
        if rows == PANEL && columns == PANEL {
            // SAFETY: the block lies within the destination, because the callers of
            // `blocked::product` assert that the whole result does, and no other task writes its
            // rows and columns.
            let first = unsafe { out.pointer(start..start + (PANEL - 1) * self.stride + PANEL) };
            // SAFETY: the destination has 32 rows of 32 values from there on, and the operands have
            // their lines by the assertion above.
            unsafe {
                multiply.run(left, right, steps, Results { first, stride: self.stride, rows, add })
            };
            return;
        }
        // If the product is added, the sums start from the values of the destination, exactly as
        // they do in whole blocks. So the result of a row does not depend on whether it is at the
        // edge.
        let mut edge = Edge([0.0; PANEL * PANEL]);
        if add {
            for (i, edge) in edge.0.chunks_exact_mut(PANEL).take(rows).enumerate() {
                let start = start + i * self.stride;
                // SAFETY: the elements lie within the destination, no other task writes them, and
                // they are initialised if the product is added.
                edge[..columns].copy_from_slice(unsafe { out.range(start..start + columns) });
            }
        }
        // SAFETY: `edge` has 32 rows of 32 values.
        unsafe {
            let first = edge.0.as_mut_ptr();
            multiply.run(left, right, steps, Results { first, stride: PANEL, rows, add })
        };
        for (i, edge) in edge.0.chunks_exact(PANEL).take(rows).enumerate() {
            // SAFETY: as above.
            unsafe { out.write(start + i * self.stride, &edge[..columns]) };
        }
    }
}

/// Memory in which a block at the edge of the destination is computed as a whole.
#[repr(align(64))]
struct Edge([f32; PANEL * PANEL]);
