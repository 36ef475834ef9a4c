//! Gated linear units: `a ⊙ f(b)`, where a and b are the two halves of each row. The activation f
//! is the logistic function (Dauphin et al. 2017, "Language Modeling with Gated Convolutional
//! Networks") or another one (Shazeer 2020, "GLU Variants Improve Transformer").

use crate::composed::{self, on_tape};
use crate::float::{Float, vectorised};
use crate::host::{Host, for_float};
use crate::parallel::CHUNK;
use crate::profile::{even, region};
use crate::shared::filled;
use crate::spec::{Activation, GatedSpec, for_activation};
use crate::tape::{Tape, is_fused};
use candle_core::{Result, Tensor};
use rayon::prelude::*;

/// Computes `dropout(a ⊙ f(b))`, where `a` is the first half of each row and `b` the second.
///
/// # Shapes
/// `(N, 2·D)` → `(N, D)`.
///
/// # Errors
/// If the width of a row is odd or 0.
pub fn gated(tape: Option<&Tape>, x: &Tensor, spec: &GatedSpec) -> Result<Tensor> {
    let (rows, width) = x.dims2()?;
    if width == 0 || !width.is_multiple_of(2) {
        candle_core::bail!(
            "gated linear unit: rows of {width} have no two halves: the width must be even, and \
             not 0"
        );
    }
    if !is_fused(tape, &[x])? {
        return on_tape(tape, "gated", &[x], |v| composed::gated(&v[0], spec));
    }
    let shape = (rows, width / 2);
    crate::profile::time("gated", || for_float!(x, T => forward::<T>(tape, x, shape, *spec)))
}

fn forward<T: Float>(
    tape: Option<&Tape>,
    x: &Tensor,
    (rows, width): (usize, usize),
    spec: GatedSpec,
) -> Result<Tensor> {
    let host = Host::new(x)?;
    let values = host.elements::<T>()?;
    let piece = (CHUNK / width.max(1)).max(1);
    let pieces = rows.div_ceil(piece);
    // SAFETY: the pieces together write all rows, and each piece writes only its own.
    let out = unsafe {
        filled(rows * width, |to| {
            region(even(pieces), || {
                (0..pieces).into_par_iter().for_each(|number| {
                    let rows = number * piece..((number + 1) * piece).min(rows);
                    let first = rows.start * width;
                    let x = &values[2 * first..2 * rows.end * width];
                    let mut out = vec![T::default(); rows.len() * width];
                    gate(x, &mut out, (first, width), spec);
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
                    .enumerate()
                    .for_each(|(number, ((grad, x), adjoint))| {
                        gate_backward(x, adjoint, grad, (number * piece * width, width), spec);
                    });
            });
            adjoints.give(&kept, grad)
        })?;
    }
    Ok(out)
}

vectorised! {
    /// Computes some rows; `at` has two numbers: the index of their first element in the dropout
    /// mask, and the width of a result row.
    fn gate<T>(x: &[T], out: &mut [T], at: (usize, usize), spec: GatedSpec) {
        let (first, width) = at;
        for (out, row) in out.chunks_exact_mut(width).zip(x.chunks_exact(2 * width)) {
            let (a, b) = row.split_at(width);
            for_activation!(spec.activation, ACTIVATION => {
                for (out, (a, b)) in out.iter_mut().zip(a.iter().zip(b)) {
                    *out = *a * ACTIVATION.value(*b);
                }
            });
        }
        mask(out, first, spec);
    }
}

/// Applies dropout to `values`; `first` is the index of the first value in the mask.
#[inline(always)]
fn mask<T: Float>(values: &mut [T], first: usize, spec: GatedSpec) {
    if spec.dropout.is_active() {
        let factor = spec.dropout.kernel::<T>();
        for (i, value) in values.iter_mut().enumerate() {
            *value *= factor((first + i) as u32);
        }
    }
}

vectorised! {
    /// Computes the gradients with respect to some rows; `at` is as for `gate`.
    fn gate_backward<T>(
        x: &[T],
        adjoint: &[T],
        grad: &mut [T],
        at: (usize, usize),
        spec: GatedSpec,
    ) {
        let (first, width) = at;
        let mut masked = vec![T::default(); width];
        let rows = x.chunks_exact(2 * width).zip(adjoint.chunks_exact(width));
        for (number, (grad, (row, adjoint))) in
            grad.chunks_exact_mut(2 * width).zip(rows).enumerate()
        {
            masked.copy_from_slice(adjoint);
            mask(&mut masked, first + number * width, spec);
            let ((a, b), (by_a, by_b)) = (row.split_at(width), grad.split_at_mut(width));
            let given = masked.iter().zip(a.iter().zip(b));
            for_activation!(spec.activation, ACTIVATION => {
                for ((by_a, by_b), (adjoint, (a, b))) in by_a.iter_mut().zip(by_b).zip(given) {
                    let (gate, slope) = ACTIVATION.value_and_derivative(*b);
                    *by_a = *adjoint * gate;
                    *by_b = match ACTIVATION {
                        // The product is computed in this order, because another order would round
                        // differently from earlier versions.
                        Activation::Sigmoid => *adjoint * *a * gate * (T::cast(1.0) - gate),
                        _ => *adjoint * *a * slope,
                    };
                }
            });
        }
    }
}
