//! Normalisation over the last dimension: layer norm (Ba et al. 2016), or RMS norm (Zhang and
//! Sennrich 2019), which subtracts no mean. Both can have a bias.
//!
//! Candle's own fused norms silently drop the gradient; these operations have a backward pass.

use crate::composed::{self, on_tape};
use crate::device::kernels;
use crate::float::{Float, vectorised};
use crate::host::{Host, for_float};
use crate::parallel::{ROWS, combined};
use crate::profile::{even, region};
use crate::shared::Write;
use crate::spec::NormSpec;
use crate::sums::blocked_sum;
use crate::tape::{Adjoints, Slot, Tape, is_fused};
use candle_core::{Result, Tensor};
use rayon::prelude::*;
use std::mem::MaybeUninit;

/// Normalises rows over the last dimension.
///
/// # Shapes
/// `x (N, D)`, `weight (D,)`, `bias (D,)` → `(N, D)`.
///
/// # Errors
/// If the widths differ, or are 0.
pub fn norm(
    tape: Option<&Tape>,
    x: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    spec: &NormSpec,
) -> Result<Tensor> {
    if weight.elem_count() == 0 {
        candle_core::bail!("{}: rows of 0 columns have no norm", spec.name());
    }
    let inputs: Vec<&Tensor> = [x, weight].into_iter().chain(bias).collect();
    if !is_fused(tape, &inputs)? {
        let kernels = kernels(tape.is_some(), &inputs)?;
        return kernels.norm(tape, x, weight, bias, spec).unwrap_or_else(|| {
            on_tape(tape, spec.name(), &inputs, |v| composed::norm(&v[0], &v[1], v.get(2), spec))
        });
    }
    let width = weight.elem_count();
    if x.dims().last() != Some(&width) || bias.is_some_and(|bias| bias.elem_count() != width) {
        candle_core::bail!(
            "{}: shapes do not fit together: input {:?}, weight {:?}, bias {:?}",
            spec.name(),
            x.shape(),
            weight.shape(),
            bias.map(Tensor::shape)
        );
    }
    crate::profile::time(
        spec.name(),
        || for_float!(x, T => forward::<T>(tape, x, weight, bias, *spec)),
    )
}

fn forward<T: Float>(
    tape: Option<&Tape>,
    x: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    spec: NormSpec,
) -> Result<Tensor> {
    let out = normalised::<T>(x, weight, bias, spec)?;
    if let Some(tape) = tape {
        let inputs: Vec<&Tensor> = [x, weight].into_iter().chain(bias).collect();
        let of_inputs = (x.clone(), weight.clone(), bias.map(Slot::from));
        tape.record::<T>(spec.name(), &inputs, &out, move |adjoint, adjoints| {
            let (x, weight, bias) = &of_inputs;
            backward(x, weight, *bias, &adjoint, spec, adjoints)
        })?;
        let (x, weight, bias) = (x.clone(), weight.clone(), bias.cloned());
        tape.recompute(&out, move || normalised::<T>(&x, &weight, bias.as_ref(), spec));
    }
    Ok(out)
}

fn normalised<T: Float>(
    x: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    spec: NormSpec,
) -> Result<Tensor> {
    let (x_host, weight_host) = (Host::new(x)?, Host::new(weight)?);
    let bias_host = bias.map(Host::new).transpose()?;
    let (values, weights) = (x_host.elements::<T>()?, weight_host.elements::<T>()?);
    let biases = bias_host.as_ref().map(Host::elements::<T>).transpose()?;
    let piece = ROWS * weights.len();
    let mut out = Vec::with_capacity(values.len());
    let room = &mut out.spare_capacity_mut()[..values.len()];
    region(even(values.len().div_ceil(piece)), || {
        room.par_chunks_mut(piece)
            .zip(values.par_chunks(piece))
            .with_max_len(1)
            .for_each(|(out, x)| forward_rows(x, weights, biases, out, spec));
    });
    // SAFETY: all rows have been written.
    unsafe { out.set_len(values.len()) };
    Tensor::from_vec(out, x.shape(), x.device())
}

fn backward<T: Float>(
    x: &Tensor,
    weight: &Tensor,
    bias: Option<Slot>,
    adjoint: &[T],
    spec: NormSpec,
    adjoints: &mut Adjoints<'_>,
) -> Result<()> {
    let (x_host, weight_host) = (Host::new(x)?, Host::new(weight)?);
    let (values, weights) = (x_host.elements::<T>()?, weight_host.elements::<T>()?);
    let (width, piece) = (weights.len(), ROWS * weights.len());
    let summed = if bias.is_some() { 2 * width } else { width };
    let mut sums = Vec::new();
    let mut back = |out: &mut [T], write| {
        let of_rows = |((out, x), adjoint): ((&mut [T], &[T]), &[T])| {
            let mut sums = vec![T::default(); summed];
            backward_rows(x, weights, adjoint, out, write == Write::Add, &mut sums, spec);
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
        sums = combined(partial, summed);
        Ok(())
    };
    if adjoints.wants(x) {
        adjoints.add_with(x, back)?;
    } else {
        back(&mut vec![T::default(); values.len()], Write::Replace)?;
    }
    let bias_sums = sums.split_off(width);
    adjoints.give(weight, sums)?;
    match bias {
        Some(bias) => adjoints.give(bias, bias_sums),
        None => Ok(()),
    }
}

/// Computes the mean of a row and the reciprocal of its standard deviation, in two passes. Without
/// subtraction of the mean (RMS norm), returns 0 and the reciprocal of the root mean square.
#[inline(always)]
fn moments<T: Float>(row: &[T], spec: NormSpec) -> (T, T) {
    let count = T::cast(row.len() as f64);
    let mean = match spec.is_centred {
        true => blocked_sum([row], |[x]| x) / count,
        false => T::default(),
    };
    let variance = blocked_sum([row], |[x]| (x - mean) * (x - mean)) / count;
    (mean, T::cast(1.0) / (variance + T::cast(spec.epsilon)).sqrt())
}

vectorised! {
    fn forward_rows<T>(
        x: &[T],
        weight: &[T],
        bias: Option<&[T]>,
        out: &mut [MaybeUninit<T>],
        spec: NormSpec,
    ) {
        let width = weight.len();
        for (out, row) in out.chunks_exact_mut(width).zip(x.chunks_exact(width)) {
            let (mean, scale) = moments(row, spec);
            let scaled = out.iter_mut().zip(row.iter().zip(weight));
            match bias {
                Some(bias) => {
                    for ((out, (x, weight)), bias) in scaled.zip(bias) {
                        out.write((*x - mean) * scale * *weight + *bias);
                    }
                }
                None => {
                    for (out, (x, weight)) in scaled {
                        out.write((*x - mean) * scale * *weight);
                    }
                }
            }
        }
    }
}

vectorised! {
    /// Computes the gradient with respect to some rows. Adds to `sums` the gradient with respect to
    /// the weight, followed by the gradient with respect to the bias if there is one.
    fn backward_rows<T>(
        x: &[T],
        weight: &[T],
        grad: &[T],
        grad_x: &mut [T],
        add: bool,
        sums: &mut [T],
        spec: NormSpec,
    ) {
        let width = weight.len();
        let (sum_weight, sum_bias) = sums.split_at_mut(width);
        let count = T::cast(width as f64);
        let rows = x.chunks_exact(width).zip(grad.chunks_exact(width));
        for (grad_x, (row, grad)) in grad_x.chunks_exact_mut(width).zip(rows) {
            let (mean, scale) = moments(row, spec);
            let mean_grad = match spec.is_centred {
                true => blocked_sum([grad, weight], |[grad, weight]| grad * weight) / count,
                false => T::default(),
            };
            let product = |[grad, weight, x]: [T; 3]| grad * weight * ((x - mean) * scale);
            let mean_product = blocked_sum([grad, weight, row], product) / count;
            // Slices are zipped, because the checks of indices would keep the loops from
            // vectorising.
            if !add {
                grad_x.fill(T::default());
            }
            let given = row.iter().zip(grad).zip(weight);
            for (grad_x, ((x, grad), weight)) in grad_x.iter_mut().zip(given) {
                let normal = (*x - mean) * scale;
                *grad_x += scale * (*grad * *weight - mean_grad - normal * mean_product);
            }
            for (sum, (x, grad)) in sum_weight.iter_mut().zip(row.iter().zip(grad)) {
                *sum += *grad * ((*x - mean) * scale);
            }
            for (sum, grad) in sum_bias.iter_mut().zip(grad) {
                *sum += *grad;
            }
        }
    }
}
