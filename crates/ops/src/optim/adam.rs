//! Adam (Kingma and Ba 2015) in one pass over flat buffers, which have all parameters one after the
//! other.
//!
//! Candle's `AdamW` makes about fourteen passes over memory. It also keeps its moments and its step
//! count private, so that a run could not be resumed exactly.

use super::pieces::{Piece, check_buffers, update_pieces};
use crate::composed;
use crate::device::kernels_of;
use crate::float::vectorised;
use crate::spec::AdamStep;
use crate::tape::ParameterStore;
use candle_core::{Result, Tensor};
use std::ops::Range;

/// Takes one step of Adam (Kingma and Ba 2015, algorithm 1, with bias correction). Updates, in
/// place, the parameters in `range` of the store's flat layout (all parameters one after the
/// other).
///
/// # Shapes
/// `gradient` and the two moments are f32, `(range.len(),)`. The moments are updated in place on
/// the host and on CUDA. On other devices they are replaced; therefore the references are mutable.
///
/// # Errors
/// If `gradient` or a moment does not have `range.len()` elements.
pub fn adam_step(
    store: &ParameterStore,
    range: Range<usize>,
    gradient: &Tensor,
    moments: &mut [Tensor; 2],
    step: &AdamStep,
) -> Result<()> {
    if !store.device().is_cpu() {
        check_buffers("adam", store, &range, moments.iter().chain([gradient]))?;
        let kernels = kernels_of(store.device());
        return kernels
            .adam_step(store, &range, gradient, moments, step)
            .unwrap_or_else(|| composed::adam_step(store, range, gradient, moments, step));
    }
    update_pieces("adam", store, range, gradient, moments, |piece| adam_piece(piece, step))
}

/// Takes a step of Adam for some elements of a parameter. The optimizer state of the elements
/// consists of the two moments.
pub(super) fn adam_piece(piece: Piece<'_>, step: &AdamStep) {
    let Piece { weights, gradient, mut state, parameter } = piece;
    let step = &AdamStep { learning_rate: step.learning_rate * parameter.rate(), ..*step };
    let decay = if parameter.is_matrix() { step.weight_decay } else { 0.0 };
    if let [first, second] = state.as_mut_slice() {
        adam_elements::<f32>(weights, gradient, first, second, step, decay);
    }
}

vectorised! {
    fn adam_elements<T>(
        weights: &mut [T],
        gradient: &[T],
        first: &mut [T],
        second: &mut [T],
        step: &AdamStep,
        decay: f64,
    ) {
        let (beta1, beta2, one) = (T::cast(step.beta1), T::cast(step.beta2), T::cast(1.0));
        let correction1 = 1.0 - step.beta1.powf(step.step as f64);
        let correction2 = 1.0 - step.beta2.powf(step.step as f64);
        let rate = T::cast(step.learning_rate / correction1);
        let root = T::cast(1.0 / correction2.sqrt());
        let (epsilon, scale) = (T::cast(step.epsilon), T::cast(step.gradient_scale));
        let added = T::cast(if step.decoupled { 0.0 } else { decay });
        let kept = T::cast(if step.decoupled { 1.0 - step.learning_rate * decay } else { 1.0 });
        for i in 0..weights.len() {
            let g = gradient[i] * scale + added * weights[i];
            first[i] = beta1 * first[i] + (one - beta1) * g;
            second[i] = beta2 * second[i] + (one - beta2) * g * g;
            weights[i] = weights[i] * kept - rate * first[i] / (second[i].sqrt() * root + epsilon);
        }
    }
}
