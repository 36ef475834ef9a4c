//! Int8 weights in the layout that a kernel reads.

use super::kernel::Parts;
use super::{Int8Kernel, Int8Matrix, MOST_DEPTH, QUAD};
use crate::products::operand::Line;
use rayon::prelude::*;

/// The weights of a linear layer for one kernel: panels of columns, one after the other; of each,
/// for every four values of the summed dimension, those of each column side by side.
#[derive(Debug)]
pub(crate) struct PackedInt8 {
    parts: Parts,
    lines: Vec<Line>,
    /// Those of columns that are there for the panel's sake are zero.
    scales: Vec<f32>,
    /// What the sum of each column begins with.
    starts: Vec<i32>,
    outputs: usize,
    inputs: usize,
}

impl PackedInt8 {
    /// The weights `(O, I)` for a kernel that is here; none where so many values could not be
    /// summed.
    pub(crate) fn new(weights: &Int8Matrix, kernel: Int8Kernel) -> Option<Self> {
        assert!(kernel.is_here());
        Self::of_parts(weights, kernel.parts())
    }

    /// As [`Self::new`], for a kernel of these parts, whose instructions are here.
    pub(super) fn of_parts(weights: &Int8Matrix, parts: Parts) -> Option<Self> {
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

    /// One panel: its values, its scales, and what its sums begin with.
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
    // SAFETY: a line is plain numbers, of which any bits are valid.
    unsafe { std::slice::from_raw_parts(lines.as_ptr().cast(), size_of_val(lines)) }
}

fn bytes_mut(lines: &mut [Line]) -> &mut [i8] {
    // SAFETY: as above.
    unsafe { std::slice::from_raw_parts_mut(lines.as_mut_ptr().cast(), size_of_val(lines)) }
}
