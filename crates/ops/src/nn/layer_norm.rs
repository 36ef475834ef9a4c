//! Layer normalisation (Ba et al. 2016): `y = (x - mean) / sqrt(variance + ε) · γ + β` over the
//! last dimension.
//!
//! Candle's own fused layer norm cuts the gradient silently; this one has a backward pass.

use crate::float::{Float, vectorised};
use crate::host::{Host, for_float};
use crate::parallel::{ROWS, combined};
use crate::profile::{even, region};
use crate::shared::Write;
use crate::sums::blocked_sum;
use crate::tape::{Adjoints, Slot, Tape, is_fused};
use candle_core::{Result, Tensor};
use rayon::prelude::*;
use std::mem::MaybeUninit;

/// Computes the layer norm over the last dimension.
///
/// # Shapes
/// `x (N, D)`, `weight (D,)`, `bias (D,)` → `(N, D)`.
///
/// # Errors
/// When the widths differ.
pub fn layer_norm(
    tape: Option<&Tape>,
    x: &Tensor,
    weight: &Tensor,
    bias: &Tensor,
    epsilon: f64,
) -> Result<Tensor> {
    if !is_fused(tape, &[x, weight, bias])? {
        return crate::composed::layer_norm(x, weight, bias, epsilon);
    }
    if x.dims().last() != Some(&weight.elem_count()) || bias.elem_count() != weight.elem_count() {
        candle_core::bail!(
            "layer norm: input {:?}, weight {:?}, bias {:?}",
            x.shape(),
            weight.shape(),
            bias.shape()
        );
    }
    crate::profile::time(
        "layer norm",
        || for_float!(x, T => forward::<T>(tape, x, weight, bias, epsilon)),
    )
}

fn forward<T: Float>(
    tape: Option<&Tape>,
    x: &Tensor,
    weight: &Tensor,
    bias: &Tensor,
    epsilon: f64,
) -> Result<Tensor> {
    let out = normalised::<T>(x, weight, bias, epsilon)?;
    if let Some(tape) = tape {
        let (inputs, again) =
            ((x.clone(), weight.clone(), bias.into()), (x.clone(), weight.clone(), bias.clone()));
        tape.record::<T>("layer norm", &[x, weight, bias], &out, move |adjoint, adjoints| {
            let (x, weight, bias) = &inputs;
            backward(x, weight, *bias, &adjoint, epsilon, adjoints)
        })?;
        tape.recompute(&out, move || normalised::<T>(&again.0, &again.1, &again.2, epsilon));
    }
    Ok(out)
}

fn normalised<T: Float>(
    x: &Tensor,
    weight: &Tensor,
    bias: &Tensor,
    epsilon: f64,
) -> Result<Tensor> {
    let (x_host, weight_host, bias_host) = (Host::new(x)?, Host::new(weight)?, Host::new(bias)?);
    let (values, weights, biases) =
        (x_host.elements::<T>()?, weight_host.elements::<T>()?, bias_host.elements::<T>()?);
    let piece = ROWS * weights.len();
    let mut out = Vec::with_capacity(values.len());
    let room = &mut out.spare_capacity_mut()[..values.len()];
    region(even(values.len().div_ceil(piece)), || {
        room.par_chunks_mut(piece)
            .zip(values.par_chunks(piece))
            .with_max_len(1)
            .for_each(|(out, x)| forward_rows(x, weights, biases, out, epsilon));
    });
    // SAFETY: the rows have been written.
    unsafe { out.set_len(values.len()) };
    Tensor::from_vec(out, x.shape(), x.device())
}

fn backward<T: Float>(
    x: &Tensor,
    weight: &Tensor,
    bias: Slot,
    adjoint: &[T],
    epsilon: f64,
    adjoints: &mut Adjoints<'_>,
) -> Result<()> {
    let (x_host, weight_host) = (Host::new(x)?, Host::new(weight)?);
    let (values, weights) = (x_host.elements::<T>()?, weight_host.elements::<T>()?);
    let (width, piece) = (weights.len(), ROWS * weights.len());
    let mut sums = Vec::new();
    let mut back = |out: &mut [T], write| {
        let of_rows = |((out, x), adjoint): ((&mut [T], &[T]), &[T])| {
            let mut sums = vec![T::default(); 2 * width];
            backward_rows(x, weights, adjoint, out, write == Write::Add, &mut sums, epsilon);
            sums
        };
        let partial: Vec<Vec<T>> = region(even(values.len().div_ceil(piece)), || {
            out.par_chunks_mut(piece)
                .zip(values.par_chunks(piece))
                .zip(adjoint.par_chunks(piece))
                .with_max_len(1)
                .map(of_rows)
                .collect()
        });
        sums = combined(partial, 2 * width);
        Ok(())
    };
    if adjoints.wants(x) {
        adjoints.add_with(x, back)?;
    } else {
        back(&mut vec![T::default(); values.len()], Write::Replace)?;
    }
    let bias_sums = sums.split_off(width);
    adjoints.give(weight, sums)?;
    adjoints.give(bias, bias_sums)
}

/// Computes the mean and the reciprocal standard deviation of a row, in two passes.
#[inline(always)]
fn moments<T: Float>(row: &[T], epsilon: f64) -> (T, T) {
    let count = T::of(row.len() as f64);
    let mean = blocked_sum([row], |[x]| x) / count;
    let variance = blocked_sum([row], |[x]| (x - mean) * (x - mean)) / count;
    (mean, T::of(1.0) / (variance + T::of(epsilon)).sqrt())
}

vectorised! {
    fn forward_rows<T>(
        x: &[T],
        weight: &[T],
        bias: &[T],
        out: &mut [MaybeUninit<T>],
        epsilon: f64,
    ) {
        let width = weight.len();
        for (out, row) in out.chunks_exact_mut(width).zip(x.chunks_exact(width)) {
            let (mean, scale) = moments(row, epsilon);
            for (out, ((x, weight), bias)) in out.iter_mut().zip(row.iter().zip(weight).zip(bias)) {
                out.write((*x - mean) * scale * *weight + *bias);
            }
        }
    }
}

vectorised! {
    /// Runs the backward pass of some rows; `sums` holds the gradients of weight and bias, one
    /// after the other.
    fn backward_rows<T>(
        x: &[T],
        weight: &[T],
        grad: &[T],
        grad_x: &mut [T],
        add: bool,
        sums: &mut [T],
        epsilon: f64,
    ) {
        let width = weight.len();
        let (sum_weight, sum_bias) = sums.split_at_mut(width);
        let count = T::of(width as f64);
        let rows = x.chunks_exact(width).zip(grad.chunks_exact(width));
        for (grad_x, (row, grad)) in grad_x.chunks_exact_mut(width).zip(rows) {
            let (mean, scale) = moments(row, epsilon);
            let mean_grad = blocked_sum([grad, weight], |[grad, weight]| grad * weight) / count;
            let product = |[grad, weight, x]: [T; 3]| grad * weight * ((x - mean) * scale);
            let mean_product = blocked_sum([grad, weight, row], product) / count;
            // Zipped, since checked indices would keep the loops from vectorising.
            if !add {
                grad_x.fill(T::default());
            }
            let given = row.iter().zip(grad).zip(weight);
            for (grad_x, ((x, grad), weight)) in grad_x.iter_mut().zip(given) {
                let normal = (*x - mean) * scale;
                *grad_x += scale * (*grad * *weight - mean_grad - normal * mean_product);
            }
            let sums = sum_weight.iter_mut().zip(sum_bias.iter_mut());
            for ((sum_weight, sum_bias), (x, grad)) in sums.zip(row.iter().zip(grad)) {
                *sum_weight += *grad * ((*x - mean) * scale);
                *sum_bias += *grad;
            }
        }
    }
}
