//! Int8 weights, packed in the order in which a kernel reads them.

use super::parts::Parts;
use super::{Int8Kernel, Int8Matrix, MOST_DEPTH, QUAD};
use crate::products::operand::Line;
use rayon::prelude::*;

/// Weights of a linear layer, packed for one kernel in panels of columns, one panel after the
/// other. In a panel, four consecutive values of the summed dimension lie side by side for each
/// column.
#[derive(Debug)]
pub(crate) struct PackedInt8 {
    parts: Parts,
    lines: Vec<Line>,
    /// Scale of each column; zero for columns that fill up the last panel.
    scales: Vec<f32>,
    /// Initial value of the sum of each column. A kernel can add a shift to all activations. The
    /// initial value cancels it: it is minus the shift times the sum of the column's weights.
    starts: Vec<i32>,
    outputs: usize,
    inputs: usize,
}

impl PackedInt8 {
    /// Packs the weights `(O, I)` for a kernel of this processor; `None` if there are so many
    /// inputs that sums could overflow.
    pub(crate) fn new(weights: &Int8Matrix, kernel: Int8Kernel) -> Option<Self> {
        assert!(kernel.is_here());
        Self::for_parts(weights, kernel.parts())
    }

    /// Packs the weights for a kernel with these functions and sizes. This processor must have the
    /// kernel's instructions.
    pub(super) fn for_parts(weights: &Int8Matrix, parts: Parts) -> Option<Self> {
        let (outputs, inputs) = (weights.rows(), weights.width());
        if inputs > MOST_DEPTH {
            return None;
        }
        let Parts { width, shift, .. } = parts;
        let (panels, quads) = (outputs.div_ceil(width), inputs.div_ceil(QUAD));
        let columns = panels * width;
        let panel_bytes = quads * width * QUAD;
        let mut lines = vec![Line::ZERO; (panels * panel_bytes).div_ceil(size_of::<Line>())];
        bytes_mut(&mut lines)[..panels * panel_bytes]
            .par_chunks_mut(panel_bytes.max(1))
            .enumerate()
            .for_each(|(panel, bytes)| {
                let rows = weights.values().chunks_exact(inputs).skip(panel * width).take(width);
                for (column, row) in rows.enumerate() {
                    for (quad, values) in row.chunks(QUAD).enumerate() {
                        let at = (quad * width + column) * QUAD;
                        bytes[at..at + values.len()].copy_from_slice(values);
                    }
                }
            });
        let mut scales = weights.scales().to_vec();
        scales.resize(columns, 0.0);
        let start = |row: &[i8]| -shift * row.iter().map(|&value| i32::from(value)).sum::<i32>();
        let mut starts: Vec<i32> = weights.values().chunks_exact(inputs).map(start).collect();
        starts.resize(columns, 0);
        Some(Self { parts, lines, scales, starts, outputs, inputs })
    }

    pub(super) fn parts(&self) -> &Parts {
        &self.parts
    }

    pub(crate) fn outputs(&self) -> usize {
        self.outputs
    }

    pub(crate) fn inputs(&self) -> usize {
        self.inputs
    }

    pub(super) fn quads(&self) -> usize {
        self.inputs.div_ceil(QUAD)
    }

    /// Returns the values, the scales and the initial sums of one panel.
    pub(super) fn panel(&self, panel: usize) -> (&[i8], &[f32], &[i32]) {
        let width = self.parts.width;
        let size = self.quads() * width * QUAD;
        let columns = panel * width..(panel + 1) * width;
        (
            &bytes(&self.lines)[panel * size..(panel + 1) * size],
            &self.scales[columns.clone()],
            &self.starts[columns],
        )
    }
}

fn bytes(lines: &[Line]) -> &[i8] {
    // SAFETY: a line consists of numbers, for which any bits are valid.
    unsafe { std::slice::from_raw_parts(lines.as_ptr().cast(), size_of_val(lines)) }
}

fn bytes_mut(lines: &mut [Line]) -> &mut [i8] {
    // SAFETY: as above.
    unsafe { std::slice::from_raw_parts_mut(lines.as_mut_ptr().cast(), size_of_val(lines)) }
}
