//! Passes over the flat buffers: gradient norm, Adam, moving average.
//!
//! Candle's `AdamW` keeps its moments and step private, so that a run could not be resumed exactly,
//! and takes about fourteen passes over memory; this is one.

use crate::parallel::{CHUNK, Shared};
use crate::parameters::{Parameter, ParameterStore};
use crate::real::{Host, vectorised};
use candle_core::{CpuStorage, InplaceOp1, Layout, Result, Tensor};
use rayon::prelude::*;
use std::cell::RefCell;

/// The numbers of one optimizer step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamStep {
    /// Learning rate of this step.
    pub learning_rate: f64,
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub epsilon: f64,
    /// Weight decay, on matrices only.
    pub weight_decay: f64,
    /// Whether the decay is decoupled from the gradient (AdamW, Loshchilov and Hutter 2019) or
    /// added to it (L2).
    pub decoupled: bool,
    /// Number of the step, from 1.
    pub step: u64,
    /// Factor of the gradient: below 1 where it is clipped.
    pub gradient_scale: f64,
}

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
        return composed_adam_step(store, gradients, first, second, step);
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
    fn adam_elements<T>(weights: &mut [T], gradient: &[T], first: &mut [T], second: &mut [T], step: &AdamStep, decay: f64) {
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

/// The same step of Candle's primitives: the oracle, and what runs on other devices than the host.
///
/// # Errors
/// When a buffer's length is not the store's.
pub fn composed_adam_step(
    store: &ParameterStore,
    gradients: &Tensor,
    first: &mut Tensor,
    second: &mut Tensor,
    step: &AdamStep,
) -> Result<()> {
    let weights = store.flat()?;
    let decay = (step.weight_decay != 0.0).then(|| {
        let rate = |p: &Parameter| if p.is_matrix() { step.weight_decay as f32 } else { 0.0 };
        let rates: Vec<f32> =
            store.parameters().iter().flat_map(|p| std::iter::repeat_n(rate(p), p.len())).collect();
        Tensor::from_vec(rates, store.len(), store.device())
    });
    let decay = decay.transpose()?;
    let mut gradient = (gradients * step.gradient_scale)?;
    let mut kept = weights.clone();
    if let Some(decay) = decay {
        let decayed = (decay * &weights)?;
        if step.decoupled {
            kept = (kept - (decayed * step.learning_rate)?)?;
        } else {
            gradient = (gradient + decayed)?;
        }
    }
    *first = ((&*first * step.beta1)? + (&gradient * (1.0 - step.beta1))?)?.detach();
    *second = ((&*second * step.beta2)? + (gradient.sqr()? * (1.0 - step.beta2))?)?.detach();
    let correction1 = 1.0 - step.beta1.powf(step.step as f64);
    let correction2 = 1.0 - step.beta2.powf(step.step as f64);
    let root = ((&*second / correction2)?.sqrt()? + step.epsilon)?;
    let update = ((&*first / root)? * (step.learning_rate / correction1))?;
    store.set_flat(&(kept - update)?)
}

/// The Euclidean norm of a flat buffer, summed in f64, on a GPU in f32.
///
/// # Errors
/// When the buffer is not f32.
pub fn global_norm(flat: &Tensor) -> Result<f64> {
    if !flat.device().is_cpu() {
        return Ok(f64::from(flat.sqr()?.sum_all()?.to_scalar::<f32>()?).sqrt());
    }
    let host = Host::new(flat)?;
    let values = host.elements::<f32>()?;
    let parts: Vec<f64> = crate::profile::time("gradient norm", || {
        values.par_chunks(CHUNK).map(squares::<f32>).collect()
    });
    Ok(parts.iter().sum::<f64>().sqrt())
}

vectorised! {
    fn squares<T>(values: &[T]) -> f64 {
        let mut lanes = [0.0; 16];
        let blocks = values.chunks_exact(16);
        let rest = blocks.remainder().iter().fold(0.0, |sum, x| sum + x.wide() * x.wide());
        for block in blocks {
            for (lane, x) in lanes.iter_mut().zip(block) {
                *lane += x.wide() * x.wide();
            }
        }
        lanes.iter().sum::<f64>() + rest
    }
}

/// `average ← decay · average + (1 - decay) · weights`: the exponential moving average of the
/// weights.
///
/// # Errors
/// When the buffer's length is not the store's.
pub fn ema_step(store: &ParameterStore, average: &mut Tensor, decay: f64) -> Result<()> {
    if average.elem_count() != store.len() {
        candle_core::bail!(
            "moving average: a buffer of {} values for {} parameters",
            average.elem_count(),
            store.len()
        );
    }
    if !store.device().is_cpu() {
        *average = ((&*average * decay)? + (store.flat()? * (1.0 - decay))?)?.detach();
        return Ok(());
    }
    update_elements(average, |average| {
        for parameter in store.parameters() {
            let weights = parameter.var().as_detached_tensor();
            let host = Host::new(&weights)?;
            let range = parameter.offset()..parameter.offset() + parameter.len();
            for (average, weight) in average[range].iter_mut().zip(host.elements::<f32>()?) {
                *average = *average * decay as f32 + *weight * (1.0 - decay) as f32;
            }
        }
        Ok(())
    })
}

/// Mutable access to a contiguous f32 tensor on the host.
pub(crate) fn update_elements(
    tensor: &Tensor,
    update: impl FnMut(&mut [f32]) -> Result<()>,
) -> Result<()> {
    tensor.inplace_op1(&Update(RefCell::new(update)))
}

struct Update<F>(RefCell<F>);

impl<F: FnMut(&mut [f32]) -> Result<()>> InplaceOp1 for Update<F> {
    fn name(&self) -> &'static str {
        "update-elements"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> Result<()> {
        let CpuStorage::F32(values) = storage else {
            candle_core::bail!("expected f32, got {:?}", crate::real::Typed::data_type(storage))
        };
        match layout.contiguous_offsets() {
            Some((start, end)) => (self.0.borrow_mut())(&mut values[start..end]),
            None => candle_core::bail!("expected a contiguous tensor, got {layout:?}"),
        }
    }
}
