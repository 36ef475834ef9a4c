//! Adam, composed of Candle's operations.

use crate::spec::AdamStep;
use crate::tape::ParameterStore;
use candle_core::{Result, Tensor};
use std::ops::Range;

/// Takes a step of Adam; see [`crate::adam_step()`].
///
/// # Shapes
/// The shapes of [`crate::adam_step()`].
///
/// # Errors
/// If a buffer does not have `range.len()` elements.
pub fn adam_step(
    store: &ParameterStore,
    range: Range<usize>,
    gradient: &Tensor,
    [first, second]: &mut [Tensor; 2],
    step: &AdamStep,
) -> Result<()> {
    let weights = store.part(range.clone())?;
    let rates = store.rates(range.clone())?;
    let mut gradient = (gradient * step.gradient_scale)?;
    let mut kept = weights.clone();
    if step.weight_decay != 0.0 {
        let decayed = (store.matrices(range.clone())?.times(&weights)? * step.weight_decay)?;
        if step.decoupled {
            kept = (kept - rates.times(&(decayed * step.learning_rate)?)?)?;
        } else {
            gradient = (gradient + decayed)?;
        }
    }
    let former = [first.clone(), second.clone()];
    *first = ((&*first * step.beta1)? + (&gradient * (1.0 - step.beta1))?)?.detach();
    *second = ((&*second * step.beta2)? + (gradient.sqr()? * (1.0 - step.beta2))?)?.detach();
    let correction1 = 1.0 - step.beta1.powf(step.step as f64);
    let correction2 = 1.0 - step.beta2.powf(step.step as f64);
    let root = ((&*second / correction2)?.sqrt()? + step.epsilon)?;
    let update = rates.times(&((&*first / root)? * (step.learning_rate / correction1))?)?;
    for (moment, former) in [first, second].into_iter().zip(former) {
        *moment = store.kept_where_frozen(&range, moment.clone(), &former)?;
    }
    store.set_trained(range.start, &(kept - update)?)
}
