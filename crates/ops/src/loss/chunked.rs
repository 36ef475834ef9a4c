//! The loss in chunks of rows, in one pass. For each chunk, logits and softmax are computed. Then
//! the gradient with respect to the logits replaces the logits. The gradients with respect to the
//! inputs are computed from it, and kept for the backward pass.

use super::pairs::{BLOCK_ROWS, arranged, pair, restored};
use crate::float::{Float, vectorised};
use crate::host::Host;
use crate::parallel::add;
use crate::products::{Matrix, Packing, Right, Threads, product, product_onto};
use crate::profile::{even, region};
use crate::shared::Write;
use crate::spec::{CrossEntropySpec, LossSums, smoothed};
use crate::sums::{blocked_max, blocked_sum};
use crate::tape::{Slot, Tape};
use candle_core::{Result, Tensor};
use rayon::prelude::*;

/// Largest number of rows whose logits exist at the same time, for estimates of memory.
pub(super) const MOST_ROWS: usize = 4 * BLOCK_ROWS;

/// Number of columns whose sums over rows one task computes.
const COLUMNS: usize = 4 * 1024;

/// Computes [`biased_cross_entropy`](super::biased_cross_entropy); the inputs have been checked.
pub(super) fn cross_entropy<T: Float>(
    tape: Option<&Tape>,
    hidden: &Tensor,
    (weight, bias): (&Tensor, Option<&Tensor>),
    targets: &[u32],
    spec: &CrossEntropySpec,
) -> Result<(Tensor, LossSums)> {
    let (hidden_host, weight_host) = (Host::new(hidden)?, Host::new(weight)?);
    let bias_host = bias.map(Host::new).transpose()?;
    let width = hidden.dim(1)?;
    let hidden_values = hidden_host.elements::<T>()?;
    let classes = Classes {
        count: weight.dim(0)?,
        width,
        transposed: Right::from_row_major(&weight_host, width, true)?,
        weight: Right::from_row_major(&weight_host, width, false)?,
        bias: bias_host.as_ref().map(Host::elements::<T>).transpose()?,
    };
    let needs = |input: Option<&Tensor>| tape.zip(input).is_some_and(|(tape, it)| tape.needs(it));
    let wanted = Wanted { hidden: tape.is_some(), weight: needs(Some(weight)), bias: needs(bias) };
    let compute = || match spec.is_paired() {
        false => compute(hidden_values, &classes, targets, spec, wanted),
        true => {
            let (hidden, targets) = (arranged(hidden_values, width), arranged(targets, 1));
            let (sums, gradients) = compute(&hidden, &classes, &targets, spec, wanted);
            (sums, Gradients { hidden: restored(&gradients.hidden, width), ..gradients })
        }
    };
    let (sums, mut gradients) = crate::profile::time("cross entropy", compute);
    let loss = Tensor::from_vec(vec![T::cast(spec.total(&sums))], (), hidden.device())?;
    if let Some(tape) = tape {
        let inputs: Vec<&Tensor> = [hidden, weight].into_iter().chain(bias).collect();
        let (hidden, weight, bias) = (Slot::from(hidden), Slot::from(weight), bias.map(Slot::from));
        tape.record::<T>("cross entropy", &inputs, &loss, move |adjoint, adjoints| {
            // The adjoint of the loss (the gradient with respect to it) is 1 if the loss is the
            // root of the graph, as usual. Then the gradients need no factor.
            if adjoint[0] != T::cast(1.0) {
                gradients.values().for_each(|value| *value *= adjoint[0]);
            }
            adjoints.give(hidden, gradients.hidden)?;
            adjoints.give(weight, gradients.weight)?;
            match bias {
                Some(bias) => adjoints.give(bias, gradients.bias),
                None => Ok(()),
            }
        })?;
    }
    Ok((loss, sums))
}

/// Returns the number of rows of logits in a chunk. If operands are packed (copied to the order in
/// which a kernel reads them), each chunk packs all weights again, and adds to the gradient with
/// respect to all weights. Larger chunks do this less often, but take more memory. The faster a
/// kernel multiplies, the more time it loses with a chunk that does not fit in the cache.
fn rows_of_chunk(packing: Option<Packing>) -> usize {
    match packing {
        None => BLOCK_ROWS,
        Some(packing) if packing.is_bf16() => 2 * BLOCK_ROWS,
        Some(_) => MOST_ROWS,
    }
}

/// Weight matrix and biases of the classes.
pub(super) struct Classes<'a, T> {
    pub(super) count: usize,
    /// Number of columns of the matrix, which is the width of a hidden state.
    pub(super) width: usize,
    /// The transposed matrix, for products with hidden states.
    pub(super) transposed: Right<'a, T>,
    /// The matrix itself, for products with the gradient with respect to the logits.
    pub(super) weight: Right<'a, T>,
    pub(super) bias: Option<&'a [T]>,
}

/// Which inputs' gradients are computed together with the loss.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    pub(super) hidden: bool,
    pub(super) weight: bool,
    pub(super) bias: bool,
}

/// Gradients with respect to the inputs; those that are not requested are empty.
pub(super) struct Gradients<T> {
    pub(super) hidden: Vec<T>,
    pub(super) weight: Vec<T>,
    pub(super) bias: Vec<T>,
}

impl<T> Gradients<T> {
    fn values(&mut self) -> impl Iterator<Item = &mut T> {
        self.hidden.iter_mut().chain(&mut self.weight).chain(&mut self.bias)
    }
}

/// Computes the sums over all rows, and the gradients that are `wanted`.
pub(super) fn compute<T: Float>(
    hidden: &[T],
    class_weights: &Classes<'_, T>,
    targets: &[u32],
    spec: &CrossEntropySpec,
    wanted: Wanted,
) -> (LossSums, Gradients<T>) {
    let (rows, width, classes) = (targets.len(), class_weights.width, class_weights.count);
    let zeros = |is_wanted: bool, count| vec![T::default(); if is_wanted { count } else { 0 }];
    let mut gradients = Gradients {
        hidden: zeros(wanted.hidden, hidden.len()),
        weight: zeros(wanted.weight, classes * width),
        bias: zeros(wanted.bias, classes),
    };
    let packing = T::as_f32(hidden).and_then(|_| Packing::best(spec.products));
    let chunk_rows = rows_of_chunk(packing);
    let mut logits = vec![T::default(); chunk_rows.min(rows) * classes];
    let mut sums = LossSums::default();
    for start in (0..rows).step_by(chunk_rows) {
        let chunk = chunk_rows.min(rows - start);
        let logits = &mut logits[..chunk * classes];
        let (hidden_at, logits_at) = (Matrix::rows(width).at(start * width), Matrix::rows(classes));
        product_onto(
            (chunk, width, classes),
            (hidden, hidden_at),
            class_weights.transposed,
            (logits, logits_at),
            Write::Replace,
            spec.products,
        );
        let targets = &targets[start..start + chunk];
        let row_sums = region(even(chunk), || {
            sums_of_rows(logits, class_weights.bias, targets, spec, wanted.hidden)
        });
        row_sums.iter().for_each(|row| sums.add(row));
        if wanted.hidden {
            product_onto(
                (chunk, classes, width),
                (logits, logits_at),
                class_weights.weight,
                (&mut gradients.hidden, hidden_at),
                Write::Replace,
                spec.products,
            );
        }
        if wanted.weight {
            product(
                (classes, chunk, width),
                (logits, logits_at.transposed()),
                (hidden, hidden_at),
                (&mut gradients.weight, Matrix::rows(width)),
                Write::Add,
                (spec.products, Threads::All),
            );
        }
        if wanted.bias {
            add_rows_in_order(logits, &mut gradients.bias);
        }
    }
    (sums, gradients)
}

/// Adds biases to the logits of some rows, and returns the loss sums of each row or pair of rows.
/// If `differentiate` is set, also replaces the logits with the gradient of the loss with respect
/// to the logits.
fn sums_of_rows<T: Float>(
    logits: &mut [T],
    bias: Option<&[T]>,
    targets: &[u32],
    spec: &CrossEntropySpec,
    differentiate: bool,
) -> Vec<LossSums> {
    let classes = logits.len() / targets.len();
    let add_bias = |row: &mut [T]| bias.iter().for_each(|bias| add(row, bias));
    if spec.is_paired() {
        let blocks = logits.par_chunks_mut(BLOCK_ROWS * classes);
        let blocks = blocks.zip(targets.par_chunks(BLOCK_ROWS));
        let of_block = |(logits, targets): (&mut [T], &'_ [u32])| {
            logits.par_chunks_mut(classes).for_each(add_bias);
            pairs(logits, targets, spec, differentiate)
        };
        return blocks.flat_map_iter(of_block).collect();
    }
    let scale = if differentiate { Some(T::cast(spec.scale)) } else { None };
    let rows = logits.par_chunks_mut(classes).zip(targets);
    rows.map(|(row, &target)| {
        add_bias(row);
        loss_row(row, target as usize, spec.smoothing, scale)
    })
    .collect()
}

/// Returns the loss sums of each pair of rows in a block. If `differentiate` is set, also replaces
/// the logits with the gradient of the loss with respect to the logits.
fn pairs<T: Float>(
    logits: &mut [T],
    targets: &[u32],
    spec: &CrossEntropySpec,
    differentiate: bool,
) -> Vec<LossSums> {
    let (half, classes) = (targets.len() / 2, logits.len() / targets.len());
    let (first, second) = logits.split_at_mut(half * classes);
    let rows = first.par_chunks_mut(classes).zip(second.par_chunks_mut(classes));
    let of_pair = |(i, (first, second)): (usize, (&mut [T], &mut [T]))| {
        pair(first, second, [targets[i], targets[i + half]], spec, differentiate)
    };
    rows.enumerate().map(of_pair).collect()
}

/// Adds all rows to `sums`, in their order.
fn add_rows_in_order<T: Float>(rows: &[T], sums: &mut [T]) {
    let width = sums.len();
    region(even(width.div_ceil(COLUMNS)), || {
        sums.par_chunks_mut(COLUMNS).enumerate().for_each(|(number, sums)| {
            let first = number * COLUMNS;
            rows.chunks_exact(width).for_each(|row| add(sums, &row[first..first + sums.len()]));
        });
    });
}

vectorised! {
    /// Computes the loss sums of one token from its logits, `row`. If there is a `scale`, also
    /// replaces the logits with `scale` times the gradient of the token's loss with respect to the
    /// logits.
    fn loss_row<T>(row: &mut [T], target: usize, smoothing: f64, scale: Option<T>) -> LossSums {
        let classes = row.len();
        let largest = blocked_max(row);
        let true_logit = row[target];
        let first_largest = row[..target].iter().all(|&logit| logit < largest);
        let logit_sum = blocked_sum([&*row], |[x]| x);
        for logit in row.iter_mut() {
            *logit = (*logit - largest).exp();
        }
        let total = blocked_sum([&*row], |[x]| x);
        let log_total = (largest + total.ln()).wide();
        let nll = log_total - true_logit.wide();
        let uniform = log_total - logit_sum.wide() / classes as f64;
        if let Some(scale) = scale {
            let (factor, share) = (scale / total, scale * T::cast(smoothing / classes as f64));
            for value in row.iter_mut() {
                *value = *value * factor - share;
            }
            row[target] -= scale * T::cast(1.0 - smoothing);
        }
        LossSums {
            smoothed: smoothed(nll, uniform, smoothing),
            nll,
            correct: usize::from(true_logit == largest && first_largest),
            divergence: 0.0,
        }
    }
}
