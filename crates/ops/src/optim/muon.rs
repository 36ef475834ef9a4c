//! Muon (Jordan et al. 2024): each matrix is updated by its momentum, whose singular values are
//! first moved close to 1.

use super::adam::adam_piece;
use super::pieces::{Piece, check_buffers, update_pieces};
use crate::composed;
use crate::host::{Host, update_elements};
use crate::products::{Matrix, Products, Threads, product};
use crate::profile::{longest_of, region};
use crate::shared::Write;
use crate::spec::{MuonStep, POLYNOMIAL, ROUNDS, SMALLEST_NORM, update_scale};
use crate::tape::{Parameter, ParameterStore};
use candle_core::{Result, Tensor};
use rayon::prelude::*;
use std::ops::Range;

/// Takes one step of Muon (Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural
/// networks") for the parameters in `range` of the store's flat layout (all parameters one after
/// the other), and updates them in place.
///
/// A parameter can consist of several matrices, its projections. The weights `W` of each
/// projection, with `m` rows and `n` columns, follow the momentum `M` of their gradient `G`:
///
/// ```text
/// M ← μ M + (1 - μ) G
/// D ← μ M + (1 - μ) G
/// O ← D / ‖D‖, to which the polynomial is applied five times
/// W ← W - η (0.2 √max(m, n) O + λ W)
/// ```
///
/// The polynomial `a X + b (X Xᵀ) X + c (X Xᵀ)² X` moves the singular values of `X` close to 1. `μ`
/// is the momentum's decay, `η` the learning rate, and `λ` the weight decay.
///
/// The factor `0.2 √max(m, n)` makes updates about as large as those of Adam (Liu et al. 2025,
/// "Muon is Scalable for LLM Training", section 2.2). So both optimizers can use the same learning
/// rate. All parameters without projections take a step of [`adam_step`](crate::adam_step) instead.
///
/// # Shapes
/// `gradient` and the two buffers are f32, `(range.len(),)`. For projections, the first buffer
/// holds the momentum, and the second is not used. For other parameters, the buffers are the two
/// moments of Adam. The buffers are updated in place on the host, and replaced on other devices.
///
/// # Errors
/// If a buffer does not have `range.len()` elements, or if `range` covers only a part of a
/// parameter that has projections.
pub fn muon_step(
    store: &ParameterStore,
    range: Range<usize>,
    gradient: &Tensor,
    buffers: &mut [Tensor; 2],
    step: &MuonStep,
) -> Result<()> {
    check_buffers("muon", store, &range, buffers.iter().chain([gradient]))?;
    for (parameter, within) in store.within(&range) {
        if !parameter.projections().is_empty() && within.len() < parameter.len() {
            candle_core::bail!(
                "muon: {} is cut at {within:?}, but an update needs the whole matrix",
                parameter.name()
            );
        }
    }
    if !store.device().is_cpu() {
        return composed::muon_step(store, range, gradient, buffers, step);
    }
    update_pieces("muon", store, range.clone(), gradient, buffers, |piece| {
        if piece.parameter.projections().is_empty() {
            adam_piece(piece, &step.adam);
        } else {
            follow(piece, step);
        }
    })?;
    let (gradient, momentum) = (Host::new(gradient)?, Host::new(&buffers[0])?);
    let (gradient, momentum) = (gradient.elements::<f32>()?, momentum.elements::<f32>()?);
    let moved: Vec<&Parameter> = moved(store, &range).collect();
    let move_parameter = |parameter: &Parameter| {
        update_elements(parameter.var().as_tensor(), |weights| {
            let start = parameter.offset() - range.start;
            let here = start..start + weights.len();
            let (gradient, momentum) = (&gradient[here.clone()], &momentum[here]);
            projections(parameter, weights, gradient, momentum)
                .into_par_iter()
                .with_max_len(1)
                .for_each(|projection| projection.step(step, parameter.rate()));
            Ok(())
        })
    };
    crate::profile::time("muon", || {
        region(longest_of(|| moved.iter().copied().flat_map(costs)), || {
            moved.par_iter().with_max_len(1).try_for_each(|parameter| move_parameter(parameter))
        })
    })
}

/// Returns the parameters in `range` that are moved along their orthogonalised momentum.
fn moved<'a>(
    store: &'a ParameterStore,
    range: &Range<usize>,
) -> impl Iterator<Item = &'a Parameter> {
    let range = range.clone();
    store.parameters().iter().filter(move |parameter| {
        let is_here = range.contains(&parameter.offset());
        is_here && !parameter.is_frozen() && !parameter.projections().is_empty()
    })
}

/// Returns the number of multiplications in a round of the polynomial, for each projection of a
/// parameter. Projections are the tasks into which a step is divided.
fn costs(parameter: &Parameter) -> impl Iterator<Item = usize> {
    let columns: usize = parameter.shape()[1..].iter().product();
    parameter.projections().iter().map(move |&rows| {
        let (short, long) = (rows.min(columns), rows.max(columns));
        short * short * (2 * long + short)
    })
}

/// Updates the momentum of some elements of a parameter.
fn follow(piece: Piece<'_>, step: &MuonStep) {
    let Piece { gradient, mut state, .. } = piece;
    let (kept, scale) = (step.momentum as f32, step.adam.gradient_scale as f32);
    let [momentum, _] = state.as_mut_slice() else { return };
    for (momentum, g) in momentum.iter_mut().zip(gradient) {
        *momentum = kept * *momentum + (1.0 - kept) * (g * scale);
    }
}

/// One weight matrix, row-major, with its gradient and its momentum.
struct Projection<'a> {
    weights: &'a mut [f32],
    gradient: &'a [f32],
    momentum: &'a [f32],
    rows: usize,
}

/// Splits a parameter with its gradient and its momentum into its projections.
fn projections<'a>(
    parameter: &Parameter,
    mut weights: &'a mut [f32],
    mut gradient: &'a [f32],
    mut momentum: &'a [f32],
) -> Vec<Projection<'a>> {
    let columns: usize = parameter.shape()[1..].iter().product();
    let next = |&rows: &usize| {
        let (first, rest) = std::mem::take(&mut weights).split_at_mut(rows * columns);
        weights = rest;
        let (of_gradient, rest) = gradient.split_at(rows * columns);
        gradient = rest;
        let (of_momentum, rest) = momentum.split_at(rows * columns);
        momentum = rest;
        Projection { weights: first, gradient: of_gradient, momentum: of_momentum, rows }
    };
    parameter.projections().iter().map(next).collect()
}

impl Projection<'_> {
    /// Updates the weights; `rate` is the parameter's multiplier of the learning rate.
    fn step(self, step: &MuonStep, rate: f64) {
        let (rows, columns) = (self.rows, self.weights.len() / self.rows.max(1));
        let (kept, scale) = (step.momentum as f32, step.adam.gradient_scale as f32);
        let ahead = |(momentum, g): (&f32, &f32)| kept * momentum + (1.0 - kept) * (g * scale);
        let direction = self.momentum.iter().zip(self.gradient).map(ahead).collect();
        let direction = orthogonal(direction, rows, columns);
        let rate = step.adam.learning_rate * rate;
        let size = (rate * update_scale(rows, columns)) as f32;
        let kept = (1.0 - rate * step.adam.weight_decay) as f32;
        for (weight, direction) in self.weights.iter_mut().zip(direction) {
            *weight = kept * *weight - size * direction;
        }
    }
}

/// Moves the singular values of a matrix close to 1, by repeatedly applying [`POLYNOMIAL`]. The
/// polynomial needs the product of the matrix and its transpose. Of the two possible orders, the
/// one with the smaller product is used.
fn orthogonal(mut x: Vec<f32>, rows: usize, columns: usize) -> Vec<f32> {
    let squares: f64 = x.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
    let factor = (1.0 / squares.sqrt().max(SMALLEST_NORM)) as f32;
    x.iter_mut().for_each(|x| *x *= factor);
    let (short, is_wide) = (rows.min(columns), rows <= columns);
    let [a, b, c] = POLYNOMIAL;
    let (of_x, of_square) = (Matrix::rows(columns), Matrix::rows(short));
    let how = (Products::F32, Threads::One);
    let (mut gram, mut square) = (vec![0.0; short * short], vec![0.0; short * short]);
    let mut next = vec![0.0; x.len()];
    for _ in 0..ROUNDS {
        let [left, right] = match is_wide {
            true => [of_x, of_x.transposed()],
            false => [of_x.transposed(), of_x],
        };
        let shape = (short, rows.max(columns), short);
        product(shape, (&x, left), (&x, right), (&mut gram, of_square), Write::Replace, how);
        let squared = (&mut square[..], of_square);
        let shape = (short, short, short);
        product(shape, (&gram, of_square), (&gram, of_square), squared, Write::Replace, how);
        square.iter_mut().zip(&gram).for_each(|(square, gram)| *square = b * gram + c * *square);
        next.iter_mut().zip(&x).for_each(|(next, x)| *next = a * x);
        let (inner, to) = ((rows, short, columns), (&mut next[..], of_x));
        match is_wide {
            true => product(inner, (&square, of_square), (&x, of_x), to, Write::Add, how),
            false => product(inner, (&x, of_x), (&square, of_square), to, Write::Add, how),
        }
        std::mem::swap(&mut x, &mut next);
    }
    x
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Device;

    #[test]
    fn a_large_matrix_takes_longer_than_many_small_ones() -> Result<()> {
        let mut store = ParameterStore::new(&Device::Cpu);
        for (name, rows) in [("large", 64), ("small", 24), ("frozen", 64)] {
            store.add(name, &[rows, 8], vec![1.0; rows * 8])?;
        }
        store.add("bias", &[5], vec![1.0; 5])?;
        store.set_projections("large", &[64]);
        store.set_projections("small", &[8, 16]);
        store.set_projections("frozen", &[64]);
        store.get("frozen").expect("added").freeze();
        let all = 0..store.len();
        let found: Vec<usize> = moved(&store, &all).flat_map(costs).collect();
        // Two products of 8 · 8 · rows, and one of 8 · 8 · 8.
        let of_rows = |rows: usize| 2 * 8 * 8 * rows + 8 * 8 * 8;
        assert_eq!(found, [of_rows(64), of_rows(8), of_rows(16)]);
        assert!(longest_of(|| moved(&store, &all).flat_map(costs))(2) > 0.6);
        Ok(())
    }
}
