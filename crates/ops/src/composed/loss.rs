//! Label-smoothed cross entropy, composed of Candle's operations, for a block of rows of logits at
//! a time.
//!
//! Candle's autodiff would keep all logits, and several tensors of that size, until the backward
//! pass. So the gradients with respect to `hidden` and `weight` are computed together with the
//! loss, block by block. A tape takes these gradients directly, and Candle's graph gets them
//! through [`with_gradients`].

use super::{CountedProduct, first_largest, on_tape, wide};
use crate::device::kernels_of;
use crate::spec::{CrossEntropySpec, LossSums};
use crate::tape::{Adjoint, Slot, Tape};
use candle_core::{D, DType, Device, Result, Tensor};

/// Number of logits in a block: 64 MiB in f32. A few tensors of this size exist at the same time.
const LOGITS: usize = 1 << 24;

/// Computes the loss; see [`crate::smoothed_cross_entropy()`].
///
/// # Shapes
/// The shapes of [`crate::smoothed_cross_entropy()`].
///
/// # Errors
/// If the shapes disagree.
pub fn smoothed_cross_entropy(
    hidden: &Tensor,
    weight: &Tensor,
    targets: &[u32],
    spec: &CrossEntropySpec,
) -> Result<(Tensor, LossSums)> {
    let rows = rows_at_once(hidden, weight, spec)?;
    differentiable(hidden, weight, targets, spec, rows)
}

/// Appends a column of ones to `hidden`, and the biases as a column to `weight`. The product of the
/// results is then `hidden weightᵀ + bias`. Both operations are recorded on the tape, if there is
/// one. A matrix that is held in fewer bits than the biases is converted to their type.
///
/// # Shapes
/// `hidden (N, D)`, `weight (V, D)`, `bias (V,)` → `(N, D + 1)`, `(V, D + 1)`.
///
/// # Errors
/// If the shapes disagree.
pub fn with_bias_column(
    tape: Option<&Tape>,
    hidden: &Tensor,
    weight: &Tensor,
    bias: &Tensor,
) -> Result<(Tensor, Tensor)> {
    let weight = on_tape(tape, "bias column", &[weight, bias], |inputs| {
        let bias = inputs[1].unsqueeze(1)?;
        Tensor::cat(&[&inputs[0].to_dtype(bias.dtype())?, &bias], 1)
    })?;
    let hidden = on_tape(tape, "ones", &[hidden], |inputs| {
        let ones = Tensor::ones((inputs[0].dim(0)?, 1), inputs[0].dtype(), inputs[0].device())?;
        Tensor::cat(&[&inputs[0], &ones], 1)
    })?;
    Ok((hidden, weight))
}

/// Computes the loss, and records it on the tape if there is one.
///
/// # Shapes
/// The shapes of [`crate::smoothed_cross_entropy()`].
///
/// # Errors
/// If the shapes disagree.
pub(crate) fn cross_entropy_on_tape(
    tape: Option<&Tape>,
    hidden: &Tensor,
    weight: &Tensor,
    targets: &[u32],
    spec: &CrossEntropySpec,
) -> Result<(Tensor, LossSums)> {
    let Some(tape) = tape else { return smoothed_cross_entropy(hidden, weight, targets, spec) };
    let rows = rows_at_once(hidden, weight, spec)?;
    let differentiate = tape.needs(hidden) || tape.needs(weight);
    let Computed { loss, sums, gradients } =
        blocked(hidden, weight, targets, spec, (rows, differentiate))?;
    if let Some(gradients) = gradients {
        let to = [hidden, weight].map(|tensor| (Slot::from(tensor), tensor.dtype()));
        let device = hidden.device().clone();
        tape.record_adjoint(
            "cross entropy",
            &[hidden, weight],
            &loss,
            move |adjoint, adjoints| {
                // The adjoint of the loss (the gradient with respect to it) is 1 if the loss is the
                // root of the graph, as usual. Then the gradients need no factor.
                let factor = match adjoint {
                    Adjoint::One => None,
                    other => Some(other.tensor(&().into(), DType::F32, &device)?),
                };
                for ((slot, dtype), mut gradient) in to.into_iter().zip(gradients) {
                    if let Some(factor) = &factor {
                        gradient = gradient.broadcast_mul(&factor.to_dtype(gradient.dtype())?)?;
                    }
                    adjoints.give_tensor(slot, gradient.to_dtype(dtype)?)?;
                }
                Ok(())
            },
        )?;
    }
    Ok((loss, sums))
}

/// Returns the number of rows of logits in a block; with R-Drop, the number of pairs of rows.
fn rows_at_once(hidden: &Tensor, weight: &Tensor, spec: &CrossEntropySpec) -> Result<usize> {
    let logits = kernels_of(hidden.device()).logits_at_once(spec).unwrap_or(LOGITS);
    Ok((logits / weight.dim(0)?.max(1)).max(1))
}

/// Computes the loss so that Candle can differentiate it. `block`: number of rows of logits in a
/// block; with R-Drop, number of pairs of rows.
fn differentiable(
    hidden: &Tensor,
    weight: &Tensor,
    targets: &[u32],
    spec: &CrossEntropySpec,
    block: usize,
) -> Result<(Tensor, LossSums)> {
    let differentiate = hidden.track_op() || weight.track_op();
    let Computed { loss, sums, gradients } =
        blocked(hidden, weight, targets, spec, (block, differentiate))?;
    match gradients {
        Some([of_hidden, of_weight]) => {
            Ok((with_gradients(&loss, [(hidden, of_hidden), (weight, of_weight)])?, sums))
        }
        None => Ok((loss, sums)),
    }
}

/// Loss, its sums over tokens, and its gradients with respect to `hidden` and `weight`, if
/// requested.
struct Computed {
    loss: Tensor,
    sums: LossSums,
    gradients: Option<[Tensor; 2]>,
}

/// Computes the loss, and also its gradients if `differentiate`. `block`: number of rows of logits
/// in a block; with R-Drop, number of pairs of rows.
fn blocked(
    hidden: &Tensor,
    weight: &Tensor,
    targets: &[u32],
    spec: &CrossEntropySpec,
    (block, differentiate): (usize, bool),
) -> Result<Computed> {
    let matrix = weight.detach().to_dtype(hidden.dtype())?;
    let rows = Rows { hidden: &hidden.detach(), targets, paired: spec.is_paired() };
    let (mut sums, mut of_hidden, mut of_weight) = (Vec::new(), Vec::new(), None);
    for first in (0..rows.len()).step_by(block) {
        let (hidden, targets) = rows.block(first, block.min(rows.len() - first))?;
        let logits = hidden.times(&matrix.t()?)?; // (R, V)
        let (of_block, gradient) = sums_of_block(logits, &targets, spec, differentiate)?;
        sums.push(of_block);
        if let Some(gradient) = gradient {
            of_hidden.push(gradient.times(&matrix)?);
            of_weight = Some(weight_gradient(&gradient, &hidden, of_weight)?);
        }
    }
    let sums = read(&sums)?;
    let loss = Tensor::new(spec.total(&sums), &Device::Cpu)?;
    let loss = loss.to_dtype(super::wide_type(hidden.dtype()))?.to_device(hidden.device())?;
    let gradients = match of_weight {
        Some(of_weight) => Some([rows.restored(&of_hidden)?, of_weight]),
        None => None,
    };
    Ok(Computed { loss, sums, gradients })
}

/// Rows of `hidden` with their targets. If `paired` (R-Drop), row `i + N/2` is a second forward
/// pass over the token of row `i`: its partner.
struct Rows<'a> {
    hidden: &'a Tensor,
    targets: &'a [u32],
    paired: bool,
}

impl Rows<'_> {
    /// Returns the number of rows; if paired, the number of pairs.
    fn len(&self) -> usize {
        if self.paired { self.targets.len() / 2 } else { self.targets.len() }
    }

    /// Returns `count` rows from index `first` on, with their targets; if paired, these rows
    /// followed by their partners.
    fn block(&self, first: usize, count: usize) -> Result<(Tensor, Tensor)> {
        let part = |from: usize| self.hidden.narrow(0, from, count);
        let (hidden, targets) = if self.paired {
            let partner = self.len() + first;
            let targets = [first, partner].map(|from| &self.targets[from..from + count]);
            (Tensor::cat(&[part(first)?, part(partner)?], 0)?, targets.concat())
        } else {
            (part(first)?.contiguous()?, self.targets[first..first + count].to_vec())
        };
        let shape = (targets.len(), 1);
        Ok((hidden, Tensor::from_vec(targets, shape, self.hidden.device())?))
    }

    /// Joins the rows of all blocks in their original order.
    fn restored(&self, blocks: &[Tensor]) -> Result<Tensor> {
        if !self.paired {
            return Tensor::cat(blocks, 0);
        }
        let half = |second: usize| {
            blocks.iter().map(move |block| {
                let count = block.dim(0)? / 2;
                block.narrow(0, second * count, count)
            })
        };
        Tensor::cat(&half(0).chain(half(1)).collect::<Result<Vec<_>>>()?, 0)
    }
}

/// Computes the results of [`sums_and_gradient`] for logits in the type of the matrix products. The
/// gradient is returned in this type, too.
fn sums_of_block(
    logits: Tensor,
    targets: &Tensor,
    spec: &CrossEntropySpec,
    differentiate: bool,
) -> Result<(Tensor, Option<Tensor>)> {
    let kernels = kernels_of(logits.device());
    if let Some(computed) = kernels.block_of_loss(&logits, targets, spec, differentiate) {
        return computed;
    }
    let (sums, gradient) = sums_and_gradient(&wide(&logits)?, targets, spec, differentiate)?;
    Ok((sums, gradient.map(|gradient| gradient.to_dtype(logits.dtype())).transpose()?))
}

/// Adds `gradientᵀ · hidden` to `sum`, the gradient with respect to the weight so far. Blocks are
/// summed in f32, whatever the type of the matrix products.
fn weight_gradient(gradient: &Tensor, hidden: &Tensor, sum: Option<Tensor>) -> Result<Tensor> {
    let kernels = kernels_of(gradient.device());
    if let Some(computed) = kernels.weight_gradient(gradient, hidden, sum.as_ref()) {
        return computed;
    }
    let of_block = wide(&gradient.t()?.times(hidden)?)?;
    match sum {
        Some(sum) => sum + of_block,
        None => Ok(of_block),
    }
}

/// Computes, on the device, the sums over a block of rows, `(4,)`: smoothed loss, negative
/// log-likelihood, number of correct predictions, divergence. If `differentiate`, also computes the
/// gradient of the loss with respect to the logits.
///
/// # Shapes
/// `logits (R, V)`, `targets (R, 1)` → `(4,)` and `(R, V)`.
fn sums_and_gradient(
    logits: &Tensor,
    targets: &Tensor,
    spec: &CrossEntropySpec,
    differentiate: bool,
) -> Result<(Tensor, Option<Tensor>)> {
    let CrossEntropySpec { smoothing, r_drop, scale, .. } = *spec;
    let (rows, classes) = logits.dims2()?;
    let shifted = logits.broadcast_sub(&logits.max_keepdim(1)?)?;
    let log_total = shifted.exp()?.sum_keepdim(1)?.log()?; // (R, 1)
    let log_probs = shifted.broadcast_sub(&log_total)?;
    let nll = log_probs.gather(targets, 1)?.neg()?.sum_all()?;
    // Without smoothing, a class with the logit −∞ must not make the loss NaN.
    let smoothed = if smoothing == 0.0 {
        nll.clone()
    } else {
        let uniform = (log_probs.sum(1)?.sum_all()?.neg()? / classes as f64)?;
        ((&nll * (1.0 - smoothing))? + (uniform * smoothing)?)?
    };
    let hits = first_largest(logits)?.eq(targets)?;
    let correct = hits.to_dtype(logits.dtype())?.sum_all()?;
    let mut probabilities = differentiate.then(|| log_probs.exp()).transpose()?;
    let mut divergence = nll.zeros_like()?;
    if spec.is_paired() {
        let pairs = rows / 2;
        let half = |x: &Tensor, second: usize| x.narrow(0, second * pairs, pairs);
        // ln p - ln q, (R/2, V), where p and q are the distributions of the two rows of a pair.
        let apart = (half(&log_probs, 0)? - half(&log_probs, 1)?)?;
        let all = match &probabilities {
            Some(all) => all.clone(),
            None => log_probs.exp()?,
        };
        let (p, q) = (half(&all, 0)?, half(&all, 1)?);
        let divergence_of = |p: &Tensor, apart: &Tensor| p.mul(apart)?.sum_keepdim(D::Minus1);
        // KL(p‖q), KL(q‖p)
        let (of_p, of_q) = (divergence_of(&p, &apart)?, divergence_of(&q, &apart.neg()?)?);
        divergence = (of_p.sum_all()? + of_q.sum_all()?)?;
        if differentiate {
            // Computes the gradient with respect to the logits of p. The smoothed targets are
            // subtracted from it later. The gradient is p + r (p (s - KL(p‖q)) + p - q), where r is
            // `r_drop` and s = ln p - ln q; see `loss/pairs.rs`.
            let weighed = |p: &Tensor, q: &Tensor, apart: &Tensor, divergence: &Tensor| {
                let drawn = (p.mul(&apart.broadcast_sub(divergence)?)? + (p - q)?)?;
                p + (drawn * r_drop)?
            };
            let first = weighed(&p, &q, &apart, &of_p)?;
            let second = weighed(&q, &p, &apart.neg()?, &of_q)?;
            probabilities = Some(Tensor::cat(&[first, second], 0)?);
        }
    }
    let sums = Tensor::stack(&[smoothed, nll, correct, divergence], 0)?;
    let gradient = probabilities.map(|weighed| {
        let even = ((weighed * scale)? - scale * smoothing / classes as f64)?;
        let of_targets = Tensor::ones((rows, 1), even.dtype(), even.device())?;
        even.scatter_add(targets, &(of_targets * (-scale * (1.0 - smoothing)))?, 1)
    });
    Ok((sums, gradient.transpose()?))
}

/// Returns the total of the sums of all blocks, copied from the device in a single transfer.
fn read(blocks: &[Tensor]) -> Result<LossSums> {
    let mut sums = LossSums::default();
    if blocks.is_empty() {
        return Ok(sums);
    }
    // The total is computed on the host, because Metal has no f64.
    let all = Tensor::stack(blocks, 0)?.to_device(&Device::Cpu)?.to_dtype(DType::F64)?;
    for block in all.to_vec2::<f64>()? {
        sums.add(&LossSums {
            smoothed: block[0],
            nll: block[1],
            correct: block[2] as usize,
            divergence: block[3],
        });
    }
    Ok(sums)
}

/// Returns a tensor with the value `value`, from which Candle's backward pass computes the given
/// gradients with respect to two tensors. For each tensor x with gradient g, let S be the sum of
/// all elements of x ⊙ g. S is added to `value`, and subtracted again as a constant. This leaves
/// the value unchanged, and the derivative of the added S with respect to x is g.
fn with_gradients(value: &Tensor, gradients: [(&Tensor, Tensor); 2]) -> Result<Tensor> {
    let mut out = value.clone();
    for (tensor, gradient) in gradients {
        let gradient = wide(&gradient)?.detach();
        // Sums each row first, because a GPU would sum a whole tensor into one number with only one
        // block of threads.
        let inner = wide(tensor)?.mul(&gradient)?.sum(D::Minus1)?.sum_all()?;
        out = (out + (&inner - inner.detach())?)?;
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::products::Products;
    use candle_core::Var;

    fn random(shape: (usize, usize), factor: f64) -> Var {
        let values: Vec<f64> = (0..shape.0 * shape.1).map(|i| (i as f64 * factor).sin()).collect();
        Var::from_tensor(&Tensor::from_vec(values, shape, &Device::Cpu).unwrap()).unwrap()
    }

    #[test]
    fn blocks_of_any_size_give_the_loss_and_gradients_of_one() {
        let (hidden, weight) = (random((14, 5), 0.7), random((9, 5), 1.3));
        let targets: Vec<u32> = (0..14).map(|row| row * 4 % 9).collect();
        for r_drop in [0.0, 0.8] {
            let spec =
                CrossEntropySpec { smoothing: 0.1, r_drop, scale: 0.3, products: Products::F32 };
            let run = |block: usize| {
                let (loss, sums) =
                    differentiable(&hidden, &weight, &targets, &spec, block).unwrap();
                let gradients = loss.backward().unwrap();
                let mut all = vec![loss.to_scalar::<f64>().unwrap(), sums.nll, sums.divergence];
                for var in [&hidden, &weight] {
                    let gradient = gradients.get(var).unwrap().flatten_all().unwrap();
                    all.extend(gradient.to_vec1::<f64>().unwrap());
                }
                (all, sums.correct)
            };
            let (whole, correct) = run(14);
            for block in [1, 3, 7] {
                let (blocks, of_blocks) = run(block);
                assert_eq!(of_blocks, correct);
                for (ours, theirs) in blocks.iter().zip(&whole) {
                    assert!((ours - theirs).abs() < 1e-12, "blocks of {block}: {ours}, {theirs}");
                }
            }
        }
    }
}
