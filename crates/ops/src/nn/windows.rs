//! Windows: the neighbours of each row in its sequence, side by side. With them, a convolution over
//! a sequence becomes a matrix product.

use crate::composed;
use crate::float::Float;
use crate::host::{Host, for_float};
use crate::parallel::add;
use crate::profile::{longest_of, region};
use crate::shared::{Shared, Write, filled};
use crate::tape::{Slot, Tape, is_fused};
use candle_core::{Result, Tensor};
use rayon::prelude::*;
use std::ops::Range;
use std::sync::Arc;

/// Concatenates, for each row, the rows of its sequence from `before` rows before it to `after`
/// rows after it. Rows beyond the ends of the sequence are replaced by zeros.
///
/// # Shapes
/// `x (N, D)`, consisting of sequences with these `lengths` → `(N, (before + 1 + after)·D)`.
///
/// # Errors
/// If the sum of the lengths is not the number of rows.
pub fn windows(
    tape: Option<&Tape>,
    x: &Tensor,
    lengths: &Arc<[usize]>,
    (before, after): (usize, usize),
) -> Result<Tensor> {
    let rows = x.dims2()?.0;
    if lengths.iter().sum::<usize>() != rows {
        candle_core::bail!(
            "windows: {rows} rows, but the sum of the lengths {lengths:?} is another"
        );
    }
    if !is_fused(tape, &[x])? {
        return composed::on_tape(tape, "windows", &[x], |v| {
            composed::windows(&v[0], lengths, (before, after))
        });
    }
    let time = || for_float!(x, T => forward::<T>(tape, x, lengths, (before, after)));
    crate::profile::time("windows", time)
}

fn forward<T: Float>(
    tape: Option<&Tape>,
    x: &Tensor,
    lengths: &Arc<[usize]>,
    (before, after): (usize, usize),
) -> Result<Tensor> {
    let (rows, width) = x.dims2()?;
    let host = Host::new(x)?;
    let values = host.elements::<T>()?;
    let count = before + 1 + after;
    let zeros = vec![T::default(); width];
    let one_sequence = |rows: &Range<usize>, to: Shared<T>| {
        for row in rows.clone() {
            for neighbour in 0..count {
                let at = (row + neighbour).checked_sub(before).filter(|at| rows.contains(at));
                let values = at.map_or(&*zeros, |at| &values[at * width..(at + 1) * width]);
                // SAFETY: each sequence has its own rows.
                unsafe { to.write((row * count + neighbour) * width, values) };
            }
        }
    };
    let sequences = crate::composed::sequences(lengths);
    // SAFETY: the sequences together have all rows.
    let out = unsafe {
        filled(rows * count * width, |to| {
            region(longest_of(|| sequences.iter().map(Range::len)), || {
                sequences.par_iter().for_each(|rows| one_sequence(rows, to));
            });
        })
        .0
    };
    let out = Tensor::from_vec(out, (rows, count * width), x.device())?;
    if let Some(tape) = tape {
        let slot = Slot::from(x);
        tape.record::<T>("windows", &[x], &out, move |adjoint, adjoints| {
            adjoints.add_with(slot, |out: &mut [T], write| {
                let shared = Shared::new(out);
                let add_to_sequence = |rows: &Range<usize>| {
                    // SAFETY: each sequence has its own rows.
                    let out = unsafe { shared.range(rows.start * width..rows.end * width) };
                    if write == Write::Replace {
                        out.fill(T::default());
                    }
                    for row in rows.clone() {
                        for neighbour in 0..count {
                            let at = (row + neighbour).checked_sub(before);
                            if let Some(at) = at.filter(|at| rows.contains(at)) {
                                let to = (at - rows.start) * width;
                                let from = (row * count + neighbour) * width;
                                add(&mut out[to..to + width], &adjoint[from..from + width]);
                            }
                        }
                    }
                };
                region(longest_of(|| sequences.iter().map(Range::len)), || {
                    sequences.par_iter().for_each(add_to_sequence);
                });
                Ok(())
            })
        })?;
    }
    Ok(out)
}
