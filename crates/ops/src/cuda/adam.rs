//! Adam in place, with a kernel for each parameter.

use super::launch::{address_of, launch, walking};
use crate::spec::AdamStep;
use crate::tape::ParameterStore;
use candle_core::{Result, Tensor};
use std::ops::Range;

/// See [`crate::adam_step()`], which has checked the lengths.
///
/// # Shapes
/// The shapes of [`crate::adam_step()`].
///
/// # Errors
/// If a kernel cannot be queued.
pub(crate) fn adam_step(
    store: &ParameterStore,
    range: Range<usize>,
    gradient: &Tensor,
    [first, second]: &mut [Tensor; 2],
    step: &AdamStep,
) -> Result<()> {
    let device = store.device().as_cuda_device()?;
    let gradient = gradient.contiguous()?;
    let flat = [address_of(&gradient)?, address_of(first)?, address_of(second)?];
    let correction1 = 1.0 - step.beta1.powf(step.step as f64);
    let correction2 = 1.0 - step.beta2.powf(step.step as f64);
    for (parameter, within) in store.within(&range) {
        if parameter.is_frozen() {
            continue;
        }
        let at = |address: u64, element: usize| address + (element * size_of::<f32>()) as u64;
        let start = parameter.offset() + within.start - range.start;
        let [gradient, first, second] = flat.map(|address| at(address, start));
        let weights = at(address_of(&parameter.var().as_detached_tensor())?, within.start);
        let rate = step.learning_rate * parameter.rate();
        let decay = if parameter.is_matrix() { step.weight_decay } else { 0.0 };
        let arguments = [
            weights.into(),
            gradient.into(),
            first.into(),
            second.into(),
            (within.len() as u64).into(),
            step.gradient_scale.into(),
            step.beta1.into(),
            step.beta2.into(),
            (1.0 - step.beta1).into(),
            (1.0 - step.beta2).into(),
            (rate / correction1).into(),
            (1.0 / correction2.sqrt()).into(),
            step.epsilon.into(),
            if step.decoupled { 0.0 } else { decay }.into(),
            if step.decoupled { 1.0 - rate * decay } else { 1.0 }.into(),
        ];
        // SAFETY: `within` lies in the parameter, and the others have as many elements from `start`
        // on. Only the caller uses the moments, and operations that read the weights are queued
        // before or after.
        unsafe { launch(device, "adam", walking(within.len()), &arguments)? };
    }
    Ok(())
}
