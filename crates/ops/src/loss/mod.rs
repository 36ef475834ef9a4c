//! Output projection and label-smoothed cross entropy in one operation that never holds all logits.
//!
//! Szegedy et al. 2016, section 7: the target distribution is `(1 - ε)` on the true class plus
//! `ε/V` on each of the V classes. Let `p = softmax(h Wᵀ)` for a hidden state `h`. The loss of a
//! token with the true class `y` is then `-(1 - ε) ln p_y - ε/V Σ ln p_v`, as in PyTorch's
//! `CrossEntropyLoss(label_smoothing=ε)`. Its gradient with respect to the logits is `p` minus the
//! target distribution.
//!
//! With AMX (a unit for matrix products in Intel processors), where products cost almost nothing,
//! logits are recomputed when they are needed ([`tiled`]). Otherwise the forward pass processes a
//! chunk of rows at a time ([`chunked`]). Right after the softmax, it computes the gradient with
//! respect to the logits of the chunk. It keeps only the gradients with respect to `h` and `W`.
//! Tests compare the two.

mod chunked;
mod online;
mod pairs;
mod tiled;

use crate::composed;
use crate::host::{Host, for_float};
use crate::products::{LARGEST_PACK, Packing, Products, is_held};
use crate::shared::Write;
use crate::spec::{CrossEntropySpec, LossSums};
use crate::tape::{Adjoints, Tape, is_fused};
use candle_core::{DType, Result, Tensor};
use online::Softmax;
use pairs::{arranged, restored};
use std::borrow::Cow;
use tiled::Tiled;

/// Computes the label-smoothed cross entropy of `softmax(hidden weightᵀ)`, summed over all tokens
/// and multiplied by `spec.scale`. Also returns the [sums](LossSums) over all tokens, which are not
/// multiplied by `spec.scale`.
///
/// If `spec.r_drop` is above 0 (R-Drop), each token passes through the network twice, and the loss
/// of a row is `cross entropy + r_drop · KL(p‖q)`. Here `p` is the distribution of the row, and `q`
/// the distribution of the row from the token's other pass. A constant weight is allowed to be in
/// bf16 if `hidden` is f32, as in [`crate::linear()`].
///
/// # Shapes
/// `hidden (N, D)`, `weight (V, D)`, N class indices `targets` → a scalar.
///
/// # Errors
/// If the shapes disagree, a target is not below `V`, or `spec` has R-Drop but the number of rows
/// is odd.
pub fn smoothed_cross_entropy(
    tape: Option<&Tape>,
    hidden: &Tensor,
    weight: &Tensor,
    targets: &[u32],
    spec: &CrossEntropySpec,
) -> Result<(Tensor, LossSums)> {
    biased_cross_entropy(tape, hidden, weight, None, targets, spec)
}

/// Computes [`smoothed_cross_entropy`] of `softmax(hidden weightᵀ + bias)`.
///
/// The matrix is copied, with the biases as an additional column, if the logits are not computed in
/// chunks or if all operands are rounded.
///
/// # Shapes
/// `hidden (N, D)`, `weight (V, D)`, `bias (V,)`, N class indices `targets` → a scalar.
///
/// # Errors
/// The errors of [`smoothed_cross_entropy`].
pub fn biased_cross_entropy(
    tape: Option<&Tape>,
    hidden: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    targets: &[u32],
    spec: &CrossEntropySpec,
) -> Result<(Tensor, LossSums)> {
    let (rows, classes) = (hidden.dim(0)?, weight.dim(0)?);
    let has_biases = bias.is_none_or(|bias| bias.dims() == [classes]);
    if targets.len() != rows || hidden.dim(1)? != weight.dim(1)? || !has_biases {
        candle_core::bail!(
            "cross entropy: shapes do not fit together: hidden {:?}, weight {:?}, bias {:?}, {} \
             targets",
            hidden.shape(),
            weight.shape(),
            bias.map(Tensor::shape),
            targets.len()
        );
    }
    if let Some(target) = targets.iter().find(|&&target| target as usize >= classes) {
        candle_core::bail!("cross entropy: target {target} is not in a vocabulary of {classes}");
    }
    if spec.is_paired() && !rows.is_multiple_of(2) {
        candle_core::bail!("cross entropy: {rows} rows are no pairs: their number must be even");
    }
    let is_held = is_held(weight);
    let weights = Some(weight).filter(|_| !is_held);
    let computed: Vec<&Tensor> = [hidden].into_iter().chain(weights).chain(bias).collect();
    let is_fused = is_fused(tape, &computed)?;
    let packing = Packing::best(spec.products).filter(|_| hidden.dtype() == DType::F32 && rows > 0);
    // A weight that is held in bf16 is excluded, because packing would make a copy of all of it.
    let tiles = packing.filter(|packing| packing.is_cheaper_than_memory() && !is_held);
    let rounds = spec.products == Products::Bf16 && !is_held;
    if let Some(bias) = bias.filter(|_| !is_fused || tiles.is_some() || rounds) {
        let (hidden, weight) = composed::with_bias_column(tape, hidden, weight, bias)?;
        return smoothed_cross_entropy(tape, &hidden, &weight, targets, spec);
    }
    if !is_fused {
        return composed::cross_entropy_on_tape(tape, hidden, weight, targets, spec);
    }
    if let Some(packing) = tiles {
        return tiled_cross_entropy(tape, hidden, weight, targets, spec, packing);
    }
    for_float!(hidden, T => chunked::cross_entropy::<T>(tape, hidden, (weight, bias), targets, spec))
}

/// Returns the number of bytes that the loss of `rows` rows takes on the host, in addition to its
/// inputs and their gradients. These bytes hold the logits of `classes` classes, and a copy of the
/// weight matrix in the kernel's order. The matrix has `values` elements.
#[must_use]
pub fn loss_bytes(rows: usize, classes: u64, values: u64) -> u64 {
    let logits = classes.saturating_mul(rows.min(chunked::MOST_ROWS) as u64);
    logits.saturating_add(values.min(LARGEST_PACK as u64)).saturating_mul(4)
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
                let scale = scale * f64::from(adjoint[0]);
                give_gradients(&tiled, &softmaxes, (&hidden, &weight), (scale, paired), adjoints)
            },
        )?;
    }
    Ok((loss, sums))
}

/// Adds the gradients with respect to the hidden states and the weights, times `scale`. `paired`:
/// whether rows were arranged in pairs.
fn give_gradients(
    tiled: &Tiled,
    softmaxes: &[Softmax<f32>],
    (hidden, weight): (&Tensor, &Tensor),
    (scale, paired): (f64, bool),
    adjoints: &mut Adjoints<'_>,
) -> Result<()> {
    let (hidden_host, weight_host, width) =
        (Host::new(hidden)?, Host::new(weight)?, hidden.dim(1)?);
    let (hidden_values, weight_values) =
        (hidden_host.elements::<f32>()?, weight_host.elements::<f32>()?);
    let blocks = if paired {
        Cow::Owned(arranged(hidden_values, width))
    } else {
        Cow::Borrowed(hidden_values)
    };
    adjoints.add_with(weight, |out: &mut [f32], write| {
        tiled.add_weight_gradient(&blocks, softmaxes, scale, out, write);
        Ok(())
    })?;
    if paired {
        let mut gradient = vec![0.0; blocks.len()];
        tiled.add_hidden_gradient(weight_values, softmaxes, scale, &mut gradient, Write::Replace);
        return adjoints.give(hidden, restored(&gradient, width));
    }
    adjoints.add_with(hidden, |out: &mut [f32], write| {
        tiled.add_hidden_gradient(weight_values, softmaxes, scale, out, write);
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::chunked::{Classes, Wanted, compute};
    use super::*;
    use crate::products::{Kernel, Matrix, Right};
    use crate::rng::Counter;

    /// Tests every kernel of this machine that packs its operands, not only the fastest.
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
            let right = |at| Right::Plain(weight.as_slice(), at);
            let (transposed, own) = (right(at.transposed()), right(at));
            let of = Classes { count: classes, width, transposed, weight: own, bias: None };
            let wanted = Wanted { hidden: true, weight: true, bias: false };
            let (kept, gradients) = compute(&hidden, &of, &targets, &spec, wanted);
            let (of_hidden, of_weight) = (gradients.hidden, gradients.weight);
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

    #[test]
    fn a_class_that_its_bias_rules_out_has_no_part_in_a_loss_without_smoothing() {
        let (rows, width, classes) = (8, 6, 40);
        let random = |count: usize, key| -> Vec<f32> {
            let counter = Counter::new(key);
            (0..count as u64).map(|i| counter.normal_at(i) as f32 * 0.5).collect()
        };
        let (hidden, weight) = (random(rows * width, 3), random(classes * width, 4));
        let mut bias = random(classes, 5);
        bias[3] = f32::NEG_INFINITY;
        let targets: Vec<u32> = (0..rows as u32).map(|row| 7 + row % 4).collect();
        for r_drop in [0.0, 0.7] {
            let exact = Products::F32;
            let spec = CrossEntropySpec { smoothing: 0.0, r_drop, scale: 0.3, products: exact };
            let at = Matrix::rows(width);
            let right = |at| Right::Plain(weight.as_slice(), at);
            let (transposed, own) = (right(at.transposed()), right(at));
            let bias = Some(bias.as_slice());
            let of = Classes { count: classes, width, transposed, weight: own, bias };
            let wanted = Wanted { hidden: true, weight: true, bias: true };
            let (sums, gradients) = compute(&hidden, &of, &targets, &spec, wanted);
            assert!(spec.total(&sums).is_finite(), "R-Drop {r_drop}: {sums:?}");
            assert_eq!(gradients.bias[3], 0.0);
            assert!(
                gradients.hidden.iter().chain(&gradients.weight).all(|value| value.is_finite())
            );
        }
    }
}
