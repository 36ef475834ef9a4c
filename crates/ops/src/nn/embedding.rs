//! Embedding lookup: `dropout(table[ids] · scale + positions[position])` (Vaswani et al. 2017,
//! section 3.4).

use crate::composed::{self, on_tape};
use crate::device::kernels;
use crate::float::Float;
use crate::host::{Host, for_float};
use crate::nn::dropout::drop_in_place;
use crate::parallel::CHUNK;
use crate::profile::{even, region};
use crate::shared::{Shared, Write, filled};
use crate::spec::EmbeddingSpec;
use crate::tape::{Slot, Tape, is_fused};
use candle_core::{Result, Tensor};
use rayon::prelude::*;

/// Looks up the rows `spec.ids` of `table`, scales them, adds rows of `positions` if there is such
/// a table, and applies dropout.
///
/// # Shapes
/// `table (V, D)`, `positions (P, D)`; for N ids → `(N, D)`.
///
/// # Errors
/// If an id or position is not in its table, or the widths differ.
pub fn embedding(
    tape: Option<&Tape>,
    table: &Tensor,
    positions: Option<&Tensor>,
    spec: &EmbeddingSpec,
) -> Result<Tensor> {
    let inside = |what: &str, rows: &[u32], count: usize| match rows
        .iter()
        .find(|&&row| row as usize >= count)
    {
        Some(row) => {
            candle_core::bail!("embedding: {what} {row} is not in a table of {count} rows")
        }
        None => Ok(()),
    };
    inside("id", &spec.ids, table.dim(0)?)?;
    if let Some(positions) = positions {
        inside("position", &spec.positions, positions.dim(0)?)?;
        if positions.dim(1)? != table.dim(1)? || spec.positions.len() != spec.ids.len() {
            candle_core::bail!(
                "embedding: shapes do not fit together: {} ids and {} positions, tables {:?} and \
                 {:?}",
                spec.ids.len(),
                spec.positions.len(),
                table.shape(),
                positions.shape()
            );
        }
    }
    let inputs: Vec<&Tensor> = [table].into_iter().chain(positions).collect();
    if !is_fused(tape, &inputs)? {
        let kernels = kernels(tape.is_some(), &inputs)?;
        return kernels.embedding(tape, table, positions, spec).unwrap_or_else(|| {
            on_tape(tape, "embedding", &inputs, |v| composed::embedding(&v[0], v.get(1), spec))
        });
    }
    for_float!(table, T => forward::<T>(tape, table, positions, spec))
}

fn forward<T: Float>(
    tape: Option<&Tape>,
    table: &Tensor,
    positions: Option<&Tensor>,
    spec: &EmbeddingSpec,
) -> Result<Tensor> {
    let width = table.dim(1)?;
    let (table_host, position_host) = (Host::new(table)?, positions.map(Host::new).transpose()?);
    let position_values = position_host.as_ref().map(Host::elements::<T>).transpose()?;
    let table_values = table_host.elements::<T>()?;
    let out =
        crate::profile::time("embedding", || look_up(spec, table_values, position_values, width));
    let out = Tensor::from_vec(out, (spec.ids.len(), width), table.device())?;
    if let Some(tape) = tape {
        let inputs: Vec<&Tensor> = [table].into_iter().chain(positions).collect();
        let (table, positions, spec) = (Slot::from(table), positions.map(Slot::from), spec.clone());
        tape.record::<T>("embedding", &inputs, &out, move |mut adjoint, adjoints| {
            if spec.dropout.is_active() {
                region(even(adjoint.len().div_ceil(CHUNK)), || {
                    adjoint.par_chunks_mut(CHUNK).enumerate().for_each(|(chunk, part)| {
                        drop_in_place(part, chunk * CHUNK, spec.dropout);
                    });
                });
            }
            adjoints.add_with(table, |out: &mut [T], write| {
                scatter(&spec.ids, &adjoint, T::cast(spec.scale), width, out, write)
            })?;
            match positions {
                Some(positions) => adjoints.add_with(positions, |out: &mut [T], write| {
                    scatter(&spec.positions, &adjoint, T::cast(1.0), width, out, write)
                }),
                None => Ok(()),
            }
        })?;
    }
    Ok(out)
}

fn look_up<T: Float>(
    spec: &EmbeddingSpec,
    table: &[T],
    positions: Option<&[T]>,
    width: usize,
) -> Vec<T> {
    let scale = T::cast(spec.scale);
    let piece = (CHUNK / width.max(1)).max(1);
    let some_rows = |chunk: usize, to: Shared<T>| {
        let rows = chunk * piece..((chunk + 1) * piece).min(spec.ids.len());
        for row in rows.clone() {
            let id = spec.ids[row] as usize;
            // SAFETY: each chunk has its own rows, and a row is initialised before it is read.
            let sum = unsafe {
                to.write(row * width, &table[id * width..(id + 1) * width]);
                to.range(row * width..(row + 1) * width)
            };
            sum.iter_mut().for_each(|value| *value *= scale);
            if let Some(positions) = positions {
                let position = spec.positions[row] as usize;
                crate::parallel::add(sum, &positions[position * width..(position + 1) * width]);
            }
        }
        if spec.dropout.is_active() {
            // SAFETY: the rows have just been written.
            drop_in_place(
                unsafe { to.range(rows.start * width..rows.end * width) },
                rows.start * width,
                spec.dropout,
            );
        }
    };
    let chunks = spec.ids.len().div_ceil(piece);
    // SAFETY: the chunks together write all rows.
    unsafe {
        filled(spec.ids.len() * width, |to| {
            region(even(chunks), || {
                (0..chunks).into_par_iter().for_each(|chunk| some_rows(chunk, to));
            });
        })
        .0
    }
}

/// Returns how many columns of the table's gradient one task adds to. All threads get equal shares
/// of the columns, rounded up to whole cache lines. A share has at most 64 columns, so that a row
/// of them stays in the first-level cache.
fn columns_of_a_task(width: usize, threads: usize) -> usize {
    width.div_ceil(threads).next_multiple_of(16).clamp(16, 64)
}

/// Multiplies each row of `adjoint`, the gradient with respect to the result, by `scale`. Adds it
/// to the token's row in `out`, the gradient with respect to the table. Tokens are added in order.
fn scatter<T: Float>(
    rows: &[u32],
    adjoint: &[T],
    scale: T,
    width: usize,
    out: &mut [T],
    write: Write,
) -> Result<()> {
    if write == Write::Replace {
        region(even(out.len().div_ceil(CHUNK)), || {
            out.par_chunks_mut(CHUNK).for_each(|out| out.fill(T::default()));
        });
    }
    let shared = Shared::new(out);
    let longest = |threads| even(width.div_ceil(columns_of_a_task(width, threads)))(threads);
    let count = columns_of_a_task(width, rayon::current_num_threads());
    let some_columns = |task: usize| {
        let columns = task * count..((task + 1) * count).min(width);
        for (row, adjoint) in rows.iter().zip(adjoint.chunks_exact(width)) {
            let start = *row as usize * width;
            // SAFETY: each task has its own columns, and `out` outlives the loop.
            let out = unsafe { shared.range(start + columns.start..start + columns.end) };
            for (out, adjoint) in out.iter_mut().zip(&adjoint[columns.clone()]) {
                *out += *adjoint * scale;
            }
        }
    };
    let tasks = width.div_ceil(count);
    region(longest, || (0..tasks).into_par_iter().for_each(some_columns));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Dropout;
    use candle_core::{DType, Device, Var};

    #[test]
    fn a_table_without_columns_has_rows_without_columns() -> Result<()> {
        let table = Var::zeros((5, 0), DType::F32, &Device::Cpu)?;
        let spec = EmbeddingSpec {
            ids: [3, 1].into(),
            positions: [].into(),
            scale: 2.0,
            dropout: Dropout::none(),
        };
        let tape = Tape::new();
        let out = embedding(Some(&tape), &table, None, &spec)?;
        assert_eq!(out.dims(), [2, 0]);
        tape.differentiate(&out, &out.zeros_like()?)?;
        Ok(())
    }
}
