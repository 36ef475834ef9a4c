//! Adam (Kingma and Ba 2015) in one pass over the flat buffers.
//!
//! Candle's `AdamW` keeps its moments and step private, so that a run could not be resumed exactly,
//! and takes about fourteen passes over memory; this is one.

use crate::composed;
use crate::float::vectorised;
use crate::host::{Host, update_elements};
use crate::parallel::CHUNK;
use crate::shared::Shared;
use crate::spec::AdamStep;
use crate::tape::ParameterStore;
use candle_core::{Result, Tensor};
use rayon::prelude::*;

/// One step of Adam (Kingma and Ba 2015, algorithm 1, with bias correction), in place.
///
/// # Shapes
/// `gradients`, `first` and `second` are f32 `(total,)` in the store's layout; the moments are
/// updated in place on the host. On other devices they are replaced, which is why they come as
/// mutable references.
///
/// # Errors
/// When a buffer's length is not the store's.
pub fn adam_step(
    store: &ParameterStore,
    gradients: &Tensor,
    first: &mut Tensor,
    second: &mut Tensor,
    step: &AdamStep,
) -> Result<()> {
    for buffer in [gradients, &*first, &*second] {
        if buffer.elem_count() != store.len() {
            candle_core::bail!(
                "adam: a buffer of {} values for {} parameters",
                buffer.elem_count(),
                store.len()
            );
        }
    }
    if !store.device().is_cpu() {
        return composed::adam_step(store, gradients, first, second, step);
    }
    crate::profile::time("adam", || fused_adam_step(store, gradients, first, second, step))
}

fn fused_adam_step(
    store: &ParameterStore,
    gradients: &Tensor,
    first: &Tensor,
    second: &Tensor,
    step: &AdamStep,
) -> Result<()> {
    let host = Host::new(gradients)?;
    let gradients = host.elements::<f32>()?;
    update_elements(first, |first| {
        update_elements(second, |second| {
            let (first, second) = (Shared::new(first), Shared::new(second));
            // Most parameters are too small to be shared between threads: they go to one each.
            store.parameters().par_iter().with_max_len(1).try_for_each(|parameter| {
                let range = parameter.offset()..parameter.offset() + parameter.len();
                // SAFETY: parameters have disjoint ranges.
                let (first, second) =
                    unsafe { (first.range(range.clone()), second.range(range.clone())) };
                let gradient = &gradients[range];
                let decay = if parameter.is_matrix() { step.weight_decay } else { 0.0 };
                update_elements(parameter.var().as_tensor(), |weights| {
                    weights
                        .par_chunks_mut(CHUNK)
                        .zip(gradient.par_chunks(CHUNK))
                        .zip(first.par_chunks_mut(CHUNK).zip(second.par_chunks_mut(CHUNK)))
                        .for_each(|((weights, gradient), (first, second))| {
                            adam_elements::<f32>(weights, gradient, first, second, step, decay)
                        });
                    Ok(())
                })
            })
        })
    })
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
        let (beta1, beta2, one) = (T::of(step.beta1), T::of(step.beta2), T::of(1.0));
        let correction1 = 1.0 - step.beta1.powf(step.step as f64);
        let correction2 = 1.0 - step.beta2.powf(step.step as f64);
        let rate = T::of(step.learning_rate / correction1);
        let root = T::of(1.0 / correction2.sqrt());
        let (epsilon, scale) = (T::of(step.epsilon), T::of(step.gradient_scale));
        let added = T::of(if step.decoupled { 0.0 } else { decay });
        let kept = T::of(if step.decoupled { 1.0 - step.learning_rate * decay } else { 1.0 });
        for i in 0..weights.len() {
            let g = gradient[i] * scale + added * weights[i];
            first[i] = beta1 * first[i] + (one - beta1) * g;
            second[i] = beta2 * second[i] + (one - beta2) * g * g;
            weights[i] = weights[i] * kept - rate * first[i] / (second[i].sqrt() * root + epsilon);
        }
    }
}
