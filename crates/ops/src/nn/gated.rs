//! Gated linear units (Dauphin et al. 2017, "Language Modeling with Gated Convolutional Networks"):
//! `a ⊙ σ(b)`, with the two halves of each row.

use super::recurrence::sigmoid;
use crate::float::{Float, vectorised};
use crate::host::{Host, for_float};
use crate::parallel::CHUNK;
use crate::profile::{even, region};
use crate::shared::filled;
use crate::tape::{Tape, is_fused};
use candle_core::{Result, Tensor};
use rayon::prelude::*;

/// Computes `a ⊙ σ(b)`, where `a` is the first half of each row and `b` the second.
///
/// # Shapes
/// `(N, 2·D)` → `(N, D)`.
///
/// # Errors
/// When the width of a row is odd.
pub fn gated(tape: Option<&Tape>, x: &Tensor) -> Result<Tensor> {
    let (rows, width) = x.dims2()?;
    if !width.is_multiple_of(2) {
        candle_core::bail!("gated linear unit of rows of {width}, which have no two halves");
    }
    if !is_fused(tape, &[x])? {
        return crate::composed::gated(x);
    }
    crate::profile::time("gated", || for_float!(x, T => forward::<T>(tape, x, (rows, width / 2))))
}

fn forward<T: Float>(
    tape: Option<&Tape>,
    x: &Tensor,
    (rows, width): (usize, usize),
) -> Result<Tensor> {
    let host = Host::new(x)?;
    let values = host.elements::<T>()?;
    let piece = (CHUNK / width.max(1)).max(1);
    let pieces = rows.div_ceil(piece);
    // SAFETY: together the pieces have all rows, and each its own.
    let out = unsafe {
        filled(rows * width, |to| {
            region(even(pieces), || {
                (0..pieces).into_par_iter().for_each(|number| {
                    let rows = number * piece..((number + 1) * piece).min(rows);
                    let first = rows.start * width;
                    let x = &values[2 * first..2 * rows.end * width];
                    let mut out = vec![T::default(); rows.len() * width];
                    gate(x, &mut out, width);
                    to.write(first, &out);
                });
            });
        })
        .0
    };
    let out = Tensor::from_vec(out, (rows, width), x.device())?;
    if let Some(tape) = tape {
        let kept = tape.keep(x);
        tape.record::<T>("gated", &[x], &out, move |adjoint, adjoints| {
            let x = kept.value()?;
            let host = Host::new(&x)?;
            let values = host.elements::<T>()?;
            let mut grad = vec![T::default(); values.len()];
            region(even(pieces), || {
                grad.par_chunks_mut(2 * piece * width)
                    .zip(values.par_chunks(2 * piece * width))
                    .zip(adjoint.par_chunks(piece * width))
                    .for_each(|((grad, x), adjoint)| gate_backward(x, adjoint, grad, width));
            });
            adjoints.give(&kept, grad)
        })?;
    }
    Ok(out)
}

vectorised! {
    fn gate<T>(x: &[T], out: &mut [T], width: usize) {
        for (out, row) in out.chunks_exact_mut(width).zip(x.chunks_exact(2 * width)) {
            let (a, b) = row.split_at(width);
            for i in 0..width {
                out[i] = a[i] * sigmoid(b[i]);
            }
        }
    }
}

vectorised! {
    fn gate_backward<T>(x: &[T], adjoint: &[T], grad: &mut [T], width: usize) {
        let rows = x.chunks_exact(2 * width).zip(adjoint.chunks_exact(width));
        for (grad, (row, adjoint)) in grad.chunks_exact_mut(2 * width).zip(rows) {
            let ((a, b), (by_a, by_b)) = (row.split_at(width), grad.split_at_mut(width));
            for i in 0..width {
                let gate = sigmoid(b[i]);
                by_a[i] = adjoint[i] * gate;
                by_b[i] = adjoint[i] * a[i] * gate * (T::of(1.0) - gate);
            }
        }
    }
}
