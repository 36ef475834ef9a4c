//! Concatenation of matrices side by side, with dropout on the result.

use crate::composed::{self, on_tape};
use crate::float::Float;
use crate::host::{Host, for_float};
use crate::nn::dropout::drop_in_place;
use crate::parallel::{CHUNK, add};
use crate::profile::{even, region};
use crate::shared::{Shared, Write, filled};
use crate::spec::Dropout;
use crate::tape::{Adjoints, Slot, Tape, is_fused};
use candle_core::{Result, Tensor};
use rayon::prelude::*;

/// Concatenates the columns of all `parts`, and then applies dropout. If there is only one part,
/// this only applies dropout.
///
/// # Shapes
/// `(N, D₁)`, `(N, D₂)`, … → `(N, D₁ + D₂ + …)`.
///
/// # Errors
/// If there are no parts, or the parts differ in their numbers of rows.
pub fn columns(tape: Option<&Tape>, parts: &[&Tensor], dropout: Dropout) -> Result<Tensor> {
    let Some(first) = parts.first() else { candle_core::bail!("columns: no matrix is given") };
    let rows = first.dim(0)?;
    let widths = parts.iter().map(|part| Ok(part.dims2()?.1)).collect::<Result<Vec<_>>>()?;
    if parts.iter().any(|part| part.dims()[0] != rows) {
        let shapes: Vec<_> = parts.iter().map(|part| part.shape()).collect();
        candle_core::bail!("columns: the matrices {shapes:?} must have the same number of rows");
    }
    if !is_fused(tape, parts)? {
        return on_tape(tape, "columns", parts, |v| {
            composed::columns(&v.iter().collect::<Vec<_>>(), dropout)
        });
    }
    for_float!(*first, T => forward::<T>(tape, parts, (rows, &widths), dropout))
}

fn forward<T: Float>(
    tape: Option<&Tape>,
    parts: &[&Tensor],
    (rows, widths): (usize, &[usize]),
    dropout: Dropout,
) -> Result<Tensor> {
    let hosts = parts.iter().map(|part| Host::new(part)).collect::<Result<Vec<_>>>()?;
    let values = hosts.iter().map(Host::elements::<T>).collect::<Result<Vec<_>>>()?;
    let width: usize = widths.iter().sum();
    let piece = (CHUNK / width.max(1)).max(1);
    let some_rows = |chunk: usize, to: Shared<T>| {
        let rows = chunk * piece..((chunk + 1) * piece).min(rows);
        for row in rows.clone() {
            let mut at = row * width;
            for (values, &part) in values.iter().zip(widths) {
                // SAFETY: each chunk has its own rows.
                unsafe { to.write(at, &values[row * part..(row + 1) * part]) };
                at += part;
            }
        }
        if dropout.is_active() {
            // SAFETY: the rows have just been written.
            let written = unsafe { to.range(rows.start * width..rows.end * width) };
            drop_in_place(written, rows.start * width, dropout);
        }
    };
    let chunks = rows.div_ceil(piece);
    // SAFETY: the chunks together write all rows.
    let out = unsafe {
        filled(rows * width, |to| {
            region(even(chunks), || {
                (0..chunks).into_par_iter().for_each(|chunk| some_rows(chunk, to));
            });
        })
        .0
    };
    let out = Tensor::from_vec(out, (rows, width), parts[0].device())?;
    if let Some(tape) = tape {
        let slots: Vec<(Slot, usize)> =
            parts.iter().map(|&part| Slot::from(part)).zip(widths.iter().copied()).collect();
        tape.record::<T>("columns", parts, &out, move |adjoint, adjoints| {
            backward(slots, adjoint, (width, piece), dropout, adjoints)
        })?;
    }
    Ok(out)
}

/// Divides the columns of `adjoint`, the gradient with respect to the result, among the parts, and
/// adds them to the gradients with respect to the parts. `slots`: the parts, each with its number
/// of columns.
fn backward<T: Float>(
    slots: Vec<(Slot, usize)>,
    mut adjoint: Vec<T>,
    (width, piece): (usize, usize),
    dropout: Dropout,
    adjoints: &mut Adjoints<'_>,
) -> Result<()> {
    if dropout.is_active() {
        region(even(adjoint.len().div_ceil(CHUNK)), || {
            adjoint.par_chunks_mut(CHUNK).enumerate().for_each(|(chunk, part)| {
                drop_in_place(part, chunk * CHUNK, dropout);
            });
        });
    }
    let mut first = 0;
    for (slot, part) in slots {
        adjoints.add_with(slot, |out: &mut [T], write| {
            region(even(adjoint.len().div_ceil(CHUNK)), || {
                // If the part has no columns, `out` is empty and the loop does nothing.
                let rows = out.par_chunks_mut(part.max(1)).zip(adjoint.par_chunks(width.max(1)));
                rows.with_min_len(piece).for_each(|(out, row)| match write {
                    Write::Replace => out.copy_from_slice(&row[first..first + part]),
                    Write::Add => add(out, &row[first..first + part]),
                });
            });
            Ok(())
        })?;
        first += part;
    }
    Ok(())
}
