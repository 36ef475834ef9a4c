//! Embedding lookup: `dropout(table[ids] · scale + positions[position])` (Vaswani et al. 2017, section 3.4).

use crate::dropout::{Dropout, dropped};
use crate::parallel::{CHUNK, zip_chunks};
use crate::products::Into;
use crate::real::{Host, Real, for_real, is_fused};
use crate::tape::Tape;
use candle_core::{Result, Tensor};
use rayon::prelude::*;
use std::sync::Arc;

/// What an embedding lookup computes, beside its tables.
#[derive(Debug, Clone)]
pub struct Embedding {
    /// Row of the table for each token.
    pub ids: Arc<[u32]>,
    /// Row of the position table for each token.
    pub positions: Arc<[u32]>,
    /// Factor of the looked-up rows, not of the positions.
    pub scale: f64,
    /// Dropout on the sum.
    pub dropout: Dropout,
}

/// Looks up `spec.ids`, scales, adds positions and drops.
///
/// # Shapes
/// `table (V, D)`, `positions (P, D)`, N ids → `(N, D)`.
///
/// # Errors
/// When an id or position is not in its table, or the widths differ.
pub fn embedding(tape: Option<&Tape>, table: &Tensor, positions: Option<&Tensor>, spec: &Embedding) -> Result<Tensor> {
    let inside = |what: &str, rows: &[u32], count: usize| match rows.iter().find(|&&row| row as usize >= count) {
        Some(row) => candle_core::bail!("embedding: {what} {row} in a table of {count} rows"),
        None => Ok(()),
    };
    inside("id", &spec.ids, table.dim(0)?)?;
    if let Some(positions) = positions {
        inside("position", &spec.positions, positions.dim(0)?)?;
        if positions.dim(1)? != table.dim(1)? || spec.positions.len() != spec.ids.len() {
            candle_core::bail!(
                "embedding: {} ids and {} positions, tables {:?} and {:?}",
                spec.ids.len(),
                spec.positions.len(),
                table.shape(),
                positions.shape()
            );
        }
    }
    let inputs: Vec<&Tensor> = [table].into_iter().chain(positions).collect();
    if !is_fused(tape, &inputs) {
        return crate::composed::embedding(table, positions, spec);
    }
    for_real!(table, T => {
        let width = table.dim(1)?;
        let (table_host, position_host) = (Host::new(table)?, positions.map(Host::new).transpose()?);
        let position_values = position_host.as_ref().map(Host::elements::<T>).transpose()?;
        let table_values = table_host.elements::<T>()?;
        let out = crate::profile::time("embedding", || look_up(spec, table_values, position_values, width));
        let out = Tensor::from_vec(out, (spec.ids.len(), width), table.device())?;
        if let Some(tape) = tape {
            let (table, positions, spec) = (table.clone(), positions.cloned(), spec.clone());
            tape.record::<T>("embedding", &inputs, &out, move |mut adjoint, adjoints| {
                if spec.dropout.is_active() {
                    let mut kept = vec![T::default(); adjoint.len()];
                    zip_chunks(&adjoint, &mut kept, |first, adjoint, kept| dropped(adjoint, kept, first, spec.dropout));
                    adjoint = kept;
                }
                let width = table.dim(1)?;
                adjoints.add_with(&table, |out: &mut [T], into| scatter(&spec.ids, &adjoint, Real::of(spec.scale), width, out, into))?;
                match &positions {
                    Some(positions) => {
                        adjoints.add_with(positions, |out: &mut [T], into| scatter(&spec.positions, &adjoint, Real::of(1.0), width, out, into))
                    }
                    None => Ok(()),
                }
            })?;
        }
        Ok(out)
    })
}

fn look_up<T: Real>(spec: &Embedding, table: &[T], positions: Option<&[T]>, width: usize) -> Vec<T> {
    let scale = T::of(spec.scale);
    let mut out = vec![T::default(); spec.ids.len() * width];
    let piece = (CHUNK / width.max(1)).max(1);
    out.par_chunks_mut(piece * width).enumerate().for_each(|(chunk, out)| {
        let mut sum = vec![T::default(); out.len()];
        for (row, sum) in sum.chunks_exact_mut(width).enumerate() {
            let id = spec.ids[chunk * piece + row] as usize;
            for (sum, value) in sum.iter_mut().zip(&table[id * width..(id + 1) * width]) {
                *sum = *value * scale;
            }
            if let Some(positions) = positions {
                let position = spec.positions[chunk * piece + row] as usize;
                crate::parallel::add(sum, &positions[position * width..(position + 1) * width]);
            }
        }
        if spec.dropout.is_active() {
            dropped(&sum, out, chunk * piece * width, spec.dropout);
        } else {
            out.copy_from_slice(&sum);
        }
    });
    out
}

/// Adds each row of the adjoint, scaled, to its row of the table, in the order of the tokens.
fn scatter<T: Real>(rows: &[u32], adjoint: &[T], scale: T, width: usize, out: &mut [T], into: Into) -> Result<()> {
    if into == Into::Replace {
        out.fill(T::default());
    }
    for (row, adjoint) in rows.iter().zip(adjoint.chunks_exact(width)) {
        let start = *row as usize * width;
        for (out, adjoint) in out[start..start + width].iter_mut().zip(adjoint) {
            *out += *adjoint * scale;
        }
    }
    Ok(())
}
