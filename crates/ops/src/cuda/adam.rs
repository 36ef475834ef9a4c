//! Adam in place, with a single kernel for all parameters.

use super::launch::{address_of, launch, walking, word};
use crate::spec::AdamStep;
use crate::tape::ParameterStore;
use candle_core::{Result, Tensor};
use std::ops::Range;

/// Number of elements that a thread updates at a time, as in `adam_step` of `elements.cuh`.
const AT_ONCE: usize = 8;

/// Takes a step of Adam; see [`crate::adam_step()`], which has checked the lengths.
///
/// # Shapes
/// The shapes of [`crate::adam_step()`].
///
/// # Errors
/// If the kernel cannot be queued.
pub(super) fn adam_step(
    store: &ParameterStore,
    range: &Range<usize>,
    gradient: &Tensor,
    [first, second]: &mut [Tensor; 2],
    step: &AdamStep,
) -> Result<()> {
    let device = store.device().as_cuda_device()?;
    let gradient = gradient.contiguous()?;
    let correction1 = 1.0 - step.beta1.powf(step.step as f64);
    let correction2 = 1.0 - step.beta2.powf(step.step as f64);
    let mut parts: Vec<u32> = Vec::new();
    for (parameter, within) in store.within(range) {
        let start = parameter.offset() + within.start - range.start;
        let weights = address_of(&parameter.var().as_detached_tensor())?;
        // The kernel adds the offset of an element in the flat buffers (all parameters one after
        // the other) to `weights`, to get the address of the element in this parameter. The address
        // `weights` itself can lie outside of all memory.
        let element = |number: usize| (number * size_of::<f32>()) as u64;
        let weights = (weights + element(within.start)).wrapping_sub(element(start));
        let rate = step.learning_rate * parameter.rate();
        let decay = if parameter.is_matrix() { step.weight_decay } else { 0.0 };
        let numbers = [
            rate / correction1,
            if step.decoupled { 0.0 } else { decay },
            if step.decoupled { 1.0 - rate * decay } else { 1.0 },
        ];
        // The fields of `Part` in `elements.cuh`.
        for long in [weights, (start + within.len()) as u64] {
            parts.extend([long as u32, (long >> 32) as u32]);
        }
        parts.extend(numbers.map(|number| (number as f32).to_bits()));
        parts.push(u32::from(!parameter.is_frozen()));
    }
    let count = parts.len() / 8;
    if count == 0 {
        return Ok(());
    }
    let parts = Tensor::from_slice(&parts, parts.len(), store.device())?;
    let arguments = [
        address_of(&parts)?.into(),
        word(count)?.into(),
        address_of(&gradient)?.into(),
        address_of(first)?.into(),
        address_of(second)?.into(),
        (range.len() as u64).into(),
        step.gradient_scale.into(),
        step.beta1.into(),
        step.beta2.into(),
        (1.0 - step.beta1).into(),
        (1.0 - step.beta2).into(),
        (1.0 / correction2.sqrt()).into(),
        step.epsilon.into(),
    ];
    // SAFETY: parameters follow each other in the flat layout and fill `range`, whose length is
    // that of gradient and moments. Only the caller uses the moments, and operations that read the
    // weights are queued before or after.
    unsafe { launch(device, "adam", walking(range.len().div_ceil(AT_ONCE)), &arguments) }
}
