//! Products of f32 rows and int8 weights, which are packed in panels of columns.

use super::parts::{Block, Parts};
use super::{PackedInt8, QUAD};
use crate::claims::claim;
use crate::products::Finish;
use crate::products::operand::Line;
use crate::profile::{even, region};
use crate::shared::Shared;
use rayon::prelude::*;
use std::ops::Range;

/// Largest number of rows that a thread multiplies at a time. They stay in the second-level cache
/// while they are multiplied by all panels.
const ROWS: usize = 64;
/// A product with fewer multiplications than this uses one thread, because a second thread would
/// cost more time than it saves.
const WORTH_A_THREAD: usize = 1 << 21;
/// Fewer activations than this are rounded by one thread, because a second thread would cost more
/// time than it saves.
const WORTH_ROUNDING: usize = 1 << 17;
/// A result is wide if it has at least this many times as many columns as rows.
const WIDE: usize = 4;
/// Number of results (rounded to whole rows) that `finish` gets at a time. `finish` is a function
/// that processes complete rows of the result, for example by adding a bias.
const FINISHED: usize = 4 * 1024;

/// Computes `x (N, I) · weightsᵀ` and writes it to `out (N, O)`. Returns `true` if `finish` has
/// been called for every row, and `false` if it has not been called at all.
///
/// # Safety
/// No other thread reads or writes `out` at the same time, and it has room for `N · O` values.
pub(crate) unsafe fn product(
    x: &[f32],
    rows: usize,
    weights: &PackedInt8,
    out: Shared<f32>,
    finish: Option<Finish<'_, f32>>,
) -> bool {
    let (inputs, outputs) = (weights.inputs(), weights.outputs());
    assert!(x.len() == rows * inputs && rows * outputs <= out.len());
    if rows == 0 || outputs == 0 {
        return false;
    }
    crate::profile::count_product(rows, inputs, outputs);
    let activations = Activations::round(x, rows, weights);
    let job = Job { activations: &activations, weights, out };
    let panels = outputs.div_ceil(weights.parts().width);
    let whole_rows = |rows: Range<usize>| {
        // SAFETY: each task has its own rows.
        unsafe { job.run(rows.clone(), 0..panels) };
        let Some(finish) = finish else { return };
        let count = (FINISHED / outputs).max(1);
        for row in rows.clone().step_by(count) {
            let end = rows.end.min(row + count);
            // SAFETY: these rows have just been written, and only this task uses them.
            finish(row, unsafe { out.range(row * outputs..end * outputs) });
        }
    };
    // In 32 bits, the number of multiplications can overflow.
    if rows.saturating_mul(inputs).saturating_mul(outputs) < WORTH_A_THREAD {
        whole_rows(0..rows);
        return true;
    }
    // There are so many pieces that all threads end at about the same time. A piece consists of
    // some rows or, if there are too few rows, of some columns.
    let pieces = 4 * rayon::current_num_threads();
    if outputs < WIDE * rows && rows >= 2 * pieces {
        let blocks = rows.div_ceil(ROWS).max(pieces);
        region(even(blocks), || {
            (0..blocks)
                .into_par_iter()
                .with_max_len(1)
                .for_each(|block| whole_rows(share(rows, block, blocks)));
        });
        return true;
    }
    let pieces = pieces.min(panels);
    region(even(pieces), || {
        (0..pieces).into_par_iter().with_max_len(1).for_each(|piece| {
            // SAFETY: each piece has its own columns.
            unsafe { job.run(0..rows, share(panels, piece, pieces)) };
        });
    });
    false
}

/// Divides `0..count` into `shares` nearly equal ranges, and returns the range with the index
/// `number`.
fn share(count: usize, number: usize, shares: usize) -> Range<usize> {
    number * count / shares..(number + 1) * count / shares
}

/// Rows of activations, rounded and stored as a kernel needs them.
struct Activations {
    lines: Vec<Line>,
    /// Distance from one row to the next, in bytes.
    stride: usize,
    scales: Vec<f32>,
}

impl Activations {
    fn round(x: &[f32], rows: usize, weights: &PackedInt8) -> Self {
        let &Parts { activation_bytes, quantise, .. } = weights.parts();
        // Rows begin at cache lines, and are filled up to whole quads (four values). The values
        // that fill them up are multiplied by weights that are zero.
        let (inputs, line) = (weights.inputs(), size_of::<Line>());
        let stride_lines = (weights.quads() * QUAD * activation_bytes).div_ceil(line);
        let mut lines = vec![Line::ZERO; rows * stride_lines];
        let mut scales = vec![0.0; rows];
        let some_rows = |((x, lines), scales): ((&[f32], &mut [Line]), &mut [f32])| {
            let rows = x.chunks_exact(inputs).zip(lines.chunks_exact_mut(stride_lines));
            for ((x, lines), scale) in rows.zip(scales) {
                // SAFETY: weights are packed only for kernels of this processor; there is room for
                // a row in its lines.
                *scale = unsafe { quantise(x, lines.as_mut_ptr().cast()) };
            }
        };
        if x.len() < WORTH_ROUNDING {
            some_rows(((x, &mut lines), &mut scales));
        } else {
            region(even(rows.div_ceil(ROWS)), || {
                x.par_chunks(ROWS * inputs)
                    .zip(lines.par_chunks_mut(ROWS * stride_lines))
                    .zip(scales.par_chunks_mut(ROWS))
                    .for_each(some_rows);
            });
        }
        Self { lines, stride: stride_lines * line, scales }
    }
}

struct Job<'a> {
    activations: &'a Activations,
    weights: &'a PackedInt8,
    out: Shared<f32>,
}

impl Job<'_> {
    /// Multiplies some rows by some panels. Each panel is read once, and multiplied by all of these
    /// rows.
    ///
    /// # Safety
    /// No other thread reads or writes these rows and columns of the result at the same time.
    unsafe fn run(&self, rows: Range<usize>, panels: Range<usize>) {
        let Self { activations, weights, out } = self;
        let (outputs, parts) = (weights.outputs(), weights.parts());
        let width = parts.width;
        assert!(rows.end <= activations.scales.len());
        let mut edge = Vec::new();
        for panel in panels {
            let (values, scales, starts) = weights.panel(panel);
            let columns = panel * width..outputs.min((panel + 1) * width);
            let left = activations.lines.as_ptr().cast::<u8>();
            let block = Block {
                left: left.wrapping_add(rows.start * activations.stride),
                stride: activations.stride,
                rows: rows.len(),
                right: values.as_ptr(),
                quads: weights.quads(),
                starts: starts.as_ptr(),
                row_scales: activations.scales[rows.clone()].as_ptr(),
                scales: scales.as_ptr(),
                to: std::ptr::null_mut(),
                to_stride: outputs,
            };
            let first = rows.start * outputs + columns.start;
            if columns.len() == width {
                if cfg!(feature = "claims") {
                    let starts = (0..rows.len()).map(|row| first + row * outputs);
                    starts.for_each(|start| claim(out.address(start), width));
                }
                // SAFETY: the last row ends within the result. Weights are packed only for kernels
                // of this processor; the rows exist by the assertion, with as many quads as the
                // panel; only this call uses these results, as the caller promises.
                unsafe {
                    let end = first + (rows.len().max(1) - 1) * outputs + width;
                    (parts.products)(&Block { to: out.pointer(first..end), ..block });
                }
                continue;
            }
            edge.resize(rows.len() * width, 0.0);
            // SAFETY: as above; `edge` has room for these rows of a whole panel.
            unsafe {
                (parts.products)(&Block { to: edge.as_mut_ptr(), to_stride: width, ..block });
            }
            for (row, edge) in edge.chunks_exact(width).enumerate() {
                // SAFETY: only this call uses these results.
                unsafe { out.write(first + row * outputs, &edge[..columns.len()]) };
            }
        }
    }
}
