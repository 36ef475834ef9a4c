//! Output projection and label-smoothed cross entropy in one operation that never holds all logits.
//!
//! Szegedy et al. 2016, section 7: the target distribution is `(1 - ε)` on the true class plus
//! `ε / V` on every class. With `p = softmax(h Wᵀ)` the loss of a token is
//! `-(1 - ε) ln p_y - ε/V Σ ln p_v`, as in PyTorch's `CrossEntropyLoss(label_smoothing=ε)`, and its
//! gradient by the logits is `p - target`.
//!
//! With AMX, where products cost almost nothing, logits are recomputed when they are needed
//! ([`tiled`]). Otherwise the forward pass computes the gradient by the logits chunk by chunk,
//! right after the softmax, and keeps only the gradients of `h` and `W`; this is the oracle of the
//! tiled variant.

mod online;
mod pairs;
mod tiled;

use crate::float::{Float, vectorised};
use crate::host::{Host, for_float};
use crate::products::{Matrix, Packing, Right, Threads, is_held, product, product_onto};
use crate::profile::{even, region};
use crate::shared::Write;
use crate::spec::{CrossEntropySpec, LossSums};
use crate::sums::{blocked_max, blocked_sum};
use crate::tape::{Slot, Tape, is_fused};
use candle_core::{DType, Result, Tensor};
use pairs::{BLOCK_ROWS, arranged, pair, restored};
use rayon::prelude::*;
use std::borrow::Cow;
use tiled::Tiled;

/// Computes `scale · Σ` of the label-smoothed cross entropy of `softmax(hidden weightᵀ)`, and the
/// unscaled sums.
///
/// With `r_drop` the sum is over `cross entropy + r_drop · KL(p‖q)`, where `p` is the distribution
/// of a row, and `q` that of its partner. A constant weight may be bf16 where `hidden` is f32, as
/// that of [`crate::linear()`].
///
/// # Shapes
/// `hidden (N, D)`, `weight (V, D)`, `targets` N class numbers → scalar.
///
/// # Errors
/// When the shapes disagree, a target is not below `V`, or the number of rows that should be pairs
/// is odd.
pub fn smoothed_cross_entropy(
    tape: Option<&Tape>,
    hidden: &Tensor,
    weight: &Tensor,
    targets: &[u32],
    spec: &CrossEntropySpec,
) -> Result<(Tensor, LossSums)> {
    let (rows, classes) = (hidden.dim(0)?, weight.dim(0)?);
    if targets.len() != rows || hidden.dim(1)? != weight.dim(1)? {
        candle_core::bail!(
            "cross entropy: hidden {:?}, weight {:?}, {} targets",
            hidden.shape(),
            weight.shape(),
            targets.len()
        );
    }
    if let Some(target) = targets.iter().find(|&&target| target as usize >= classes) {
        candle_core::bail!("cross entropy: target {target} in a vocabulary of {classes}");
    }
    if spec.is_paired() && !rows.is_multiple_of(2) {
        candle_core::bail!("cross entropy: {rows} rows are no pairs");
    }
    let is_held = is_held(weight);
    let computed = if is_held { vec![hidden] } else { vec![hidden, weight] };
    if !is_fused(tape, &computed)? {
        return crate::composed::smoothed_cross_entropy(hidden, weight, targets, spec);
    }
    let packing = Packing::best(spec.products).filter(|_| hidden.dtype() == DType::F32 && rows > 0);
    // Packing would copy all of a weight that is held in few bits.
    let tiles = packing.filter(|packing| packing.is_cheaper_than_memory() && !is_held);
    if let Some(packing) = tiles {
        return tiled_cross_entropy(tape, hidden, weight, targets, spec, packing);
    }
    for_float!(hidden, T => chunked_cross_entropy::<T>(tape, hidden, weight, targets, spec))
}

fn chunked_cross_entropy<T: Float>(
    tape: Option<&Tape>,
    hidden: &Tensor,
    weight: &Tensor,
    targets: &[u32],
    spec: &CrossEntropySpec,
) -> Result<(Tensor, LossSums)> {
    let (hidden_host, weight_host) = (Host::new(hidden)?, Host::new(weight)?);
    let width = hidden.dim(1)?;
    let hidden_values = hidden_host.elements::<T>()?;
    // Logits take its transpose, and the gradient by the hidden rows takes it as it is.
    let weight_values =
        [Right::of(&weight_host, width, true)?, Right::of(&weight_host, width, false)?];
    let of_weight = (weight_values, weight.dim(0)?);
    let differentiate = match tape {
        None => Differentiate::Nothing,
        Some(tape) if tape.needs(weight) => Differentiate::Both,
        Some(_) => Differentiate::Hidden,
    };
    let compute = || match spec.is_paired() {
        false => compute(hidden_values, of_weight, targets, spec, differentiate),
        true => {
            let (hidden, targets) = (arranged(hidden_values, width), arranged(targets, 1));
            let (sums, gradients) = compute(&hidden, of_weight, &targets, spec, differentiate);
            (sums, gradients.map(|(hidden, weight)| (restored(&hidden, width), weight)))
        }
    };
    let (sums, gradients) = crate::profile::time("cross entropy", compute);
    let loss = Tensor::from_vec(vec![T::of(spec.total(&sums))], (), hidden.device())?;
    if let (Some(tape), Some(mut gradients)) = (tape, gradients) {
        let inputs = [hidden, weight];
        let slots = inputs.map(Slot::from);
        tape.record::<T>("cross entropy", &inputs, &loss, move |adjoint, adjoints| {
            // The loss, the usual root of the graph, has adjoint 1.
            if adjoint[0] != T::of(1.0) {
                let all = gradients.0.iter_mut().chain(&mut gradients.1);
                all.for_each(|value| *value *= adjoint[0]);
            }
            adjoints.give(slots[0], gradients.0)?;
            adjoints.give(slots[1], gradients.1)
        })?;
    }
    Ok((loss, sums))
}

fn tiled_cross_entropy(
    tape: Option<&Tape>,
    hidden: &Tensor,
    weight: &Tensor,
    targets: &[u32],
    spec: &CrossEntropySpec,
    packing: Packing,
) -> Result<(Tensor, LossSums)> {
    let (width, paired) = (hidden.dim(1)?, spec.is_paired());
    let (hidden_host, weight_host) = (Host::new(hidden)?, Host::new(weight)?);
    let (hidden_values, weight_values) =
        (hidden_host.elements::<f32>()?, weight_host.elements::<f32>()?);
    let (tiled, (sums, softmaxes)) = crate::profile::time("cross entropy", || {
        let tiled = match paired {
            false => Tiled::new(packing, spec, hidden_values, weight_values, targets),
            true => Tiled::new(
                packing,
                spec,
                &arranged(hidden_values, width),
                weight_values,
                &arranged(targets, 1),
            ),
        };
        let result = tiled.forward();
        (tiled, result)
    });
    let loss = Tensor::from_vec(vec![spec.total(&sums) as f32], (), hidden.device())?;
    if let Some(tape) = tape {
        let (hidden, weight, scale) = (hidden.clone(), weight.clone(), spec.scale);
        tape.record::<f32>(
            "cross entropy",
            &[&hidden.clone(), &weight.clone()],
            &loss,
            move |adjoint, adjoints| {
                let (hidden_host, weight_host) = (Host::new(&hidden)?, Host::new(&weight)?);
                let (hidden_values, weight_values) =
                    (hidden_host.elements::<f32>()?, weight_host.elements::<f32>()?);
                let scale = scale * f64::from(adjoint[0]);
                let blocks = if paired {
                    Cow::Owned(arranged(hidden_values, width))
                } else {
                    Cow::Borrowed(hidden_values)
                };
                adjoints.add_with(&weight, |out: &mut [f32], write| {
                    tiled.add_weight_gradient(&blocks, &softmaxes, scale, out, write);
                    Ok(())
                })?;
                if paired {
                    let mut gradient = vec![0.0; blocks.len()];
                    tiled.add_hidden_gradient(
                        weight_values,
                        &softmaxes,
                        scale,
                        &mut gradient,
                        Write::Replace,
                    );
                    return adjoints.give(&hidden, restored(&gradient, width));
                }
                adjoints.add_with(&hidden, |out: &mut [f32], write| {
                    tiled.add_hidden_gradient(weight_values, &softmaxes, scale, out, write);
                    Ok(())
                })
            },
        )?;
    }
    Ok((loss, sums))
}

/// Number of rows of logits that exist at a time. If operands are packed, each chunk packs all
/// weights again and adds to their whole gradient: more rows need fewer chunks, but more memory.
/// The faster a kernel multiplies, the more it loses with a chunk that does not fit in cache.
fn rows_of_chunk(packing: Option<Packing>) -> usize {
    match packing {
        None => BLOCK_ROWS,
        Some(packing) if packing.is_bf16() => 2 * BLOCK_ROWS,
        Some(_) => 4 * BLOCK_ROWS,
    }
}

type HiddenAndWeight<T> = (Vec<T>, Vec<T>);

/// Gradients that are computed beside the loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Differentiate {
    Nothing,
    /// By the hidden rows: the weight is a constant, and its gradient is left empty.
    Hidden,
    Both,
}

/// Computes the sums and gradients, given the matrix transposed and as it is, and its number of
/// rows.
fn compute<T: Float>(
    hidden: &[T],
    ([transposed, weight], classes): ([Right<'_, T>; 2], usize),
    targets: &[u32],
    spec: &CrossEntropySpec,
    differentiate: Differentiate,
) -> (LossSums, Option<HiddenAndWeight<T>>) {
    let (rows, width) = (targets.len(), hidden.len() / targets.len().max(1));
    let of_weight = differentiate == Differentiate::Both;
    let differentiate = differentiate != Differentiate::Nothing;
    let mut grad_hidden = vec![T::default(); if differentiate { hidden.len() } else { 0 }];
    let mut grad_weight = vec![T::default(); if of_weight { classes * width } else { 0 }];
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
            transposed,
            (logits, logits_at),
            Write::Replace,
            spec.products,
        );
        let scale = if differentiate { Some(T::of(spec.scale)) } else { None };
        let targets = &targets[start..start + chunk];
        let of_rows = || -> Vec<LossSums> {
            if spec.is_paired() {
                let blocks = logits.par_chunks_mut(BLOCK_ROWS * classes);
                let blocks = blocks.zip(targets.par_chunks(BLOCK_ROWS));
                blocks
                    .flat_map(|(logits, targets)| pairs(logits, targets, spec, differentiate))
                    .collect()
            } else {
                let rows = logits.par_chunks_mut(classes).zip(targets);
                rows.map(|(row, &target)| loss_row(row, target as usize, spec.smoothing, scale))
                    .collect()
            }
        };
        let row_sums = region(even(chunk), of_rows);
        row_sums.iter().for_each(|row| sums.add(row));
        if differentiate {
            product_onto(
                (chunk, classes, width),
                (logits, logits_at),
                weight,
                (&mut grad_hidden, hidden_at),
                Write::Replace,
                spec.products,
            );
        }
        if of_weight {
            let shape = (classes, chunk, width);
            product(
                shape,
                (logits, logits_at.transposed()),
                (hidden, hidden_at),
                (&mut grad_weight, Matrix::rows(width)),
                Write::Add,
                (spec.products, Threads::All),
            );
        }
    }
    (sums, differentiate.then_some((grad_hidden, grad_weight)))
}

/// Computes the sums of the pairs of a block; replaces its logits by their gradients if
/// `differentiate` is set.
fn pairs<'a, T: Float>(
    logits: &'a mut [T],
    targets: &'a [u32],
    spec: &'a CrossEntropySpec,
    differentiate: bool,
) -> impl ParallelIterator<Item = LossSums> + 'a {
    let (half, classes) = (targets.len() / 2, logits.len() / targets.len());
    let (first, second) = logits.split_at_mut(half * classes);
    let rows = first.par_chunks_mut(classes).zip(second.par_chunks_mut(classes));
    rows.enumerate().map(move |(i, (first, second))| {
        pair(first, second, [targets[i], targets[i + half]], spec, differentiate)
    })
}

vectorised! {
    /// Computes the sums of one token; with a scale, replaces the logits by their gradient.
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
            let (factor, share) = (scale / total, scale * T::of(smoothing / classes as f64));
            for value in row.iter_mut() {
                *value = *value * factor - share;
            }
            row[target] -= scale * T::of(1.0 - smoothing);
        }
        LossSums {
            smoothed: (1.0 - smoothing) * nll + smoothing * uniform,
            nll,
            correct: usize::from(true_logit == largest && first_largest),
            divergence: 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::products::{Kernel, Products};
    use crate::rng::Counter;

    /// Compares all kernels of this machine that pack, not only the fastest.
    #[test]
    fn logits_computed_again_give_what_kept_ones_give() {
        let (rows, width, classes) = (300, 40, 1100);
        let random = |count: usize, key| -> Vec<f32> {
            let counter = Counter::new(key);
            (0..count as u64).map(|i| counter.normal_at(i) as f32 * 0.5).collect()
        };
        let (hidden, weight) = (random(rows * width, 1), random(classes * width, 2));
        let targets: Vec<u32> = (0..rows as u32).map(|row| row * 7919 % classes as u32).collect();
        let distance = |ours: &[f32], theirs: &[f32]| {
            let square = |values: &mut dyn Iterator<Item = f32>| {
                values.map(|value| f64::from(value).powi(2)).sum::<f64>()
            };
            let apart = square(&mut ours.iter().zip(theirs).map(|(a, b)| a - b));
            (apart / square(&mut theirs.iter().copied())).sqrt()
        };
        let packings =
            Kernel::ALL.into_iter().filter(|kernel| kernel.is_here()).flat_map(|kernel| {
                [Products::F32, Products::Bf16]
                    .map(|products| Packing::for_kernel(kernel, products))
            });
        for (packing, r_drop) in packings.flatten().flat_map(|it| [(it, 0.0), (it, 0.7)]) {
            let exact = Products::F32;
            let spec = CrossEntropySpec { smoothing: 0.1, r_drop, scale: 0.3, products: exact };
            let at = Matrix::rows(width);
            let right = [at.transposed(), at].map(|at| Right::Plain(weight.as_slice(), at));
            let (kept, gradients) =
                compute(&hidden, (right, classes), &targets, &spec, Differentiate::Both);
            let (of_hidden, of_weight) = gradients.unwrap();
            let tiled = Tiled::new(packing, &spec, &hidden, &weight, &targets);
            let (again, softmaxes) = tiled.forward();
            let (mut to_hidden, mut to_weight) = (vec![0.0; hidden.len()], vec![1.0; weight.len()]);
            tiled.add_hidden_gradient(&weight, &softmaxes, 0.3, &mut to_hidden, Write::Replace);
            tiled.add_weight_gradient(&hidden, &softmaxes, 0.3, &mut to_weight, Write::Add);
            to_weight.iter_mut().for_each(|value| *value -= 1.0);
            let bound = if packing.rounds() { 2e-2 } else { 1e-5 };
            let ours = [
                (spec.total(&again) / spec.total(&kept) - 1.0).abs(),
                distance(&to_hidden, &of_hidden),
                distance(&to_weight, &of_weight),
            ];
            assert!(ours.iter().all(|it| *it < bound), "{packing:?}, R-Drop {r_drop}: {ours:?}");
        }
    }
}
