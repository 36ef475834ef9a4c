//! Exponential moving average of the weights (Polyak and Juditsky 1992).

use crate::host::{Host, update_elements};
use crate::tape::ParameterStore;
use candle_core::{Result, Tensor};

/// Updates the exponential moving average of the weights:
/// `average ← decay · average + (1 - decay) · weights`.
///
/// # Shapes
/// `average` is f32, `(total,)`: all parameters in the order of the store.
///
/// # Errors
/// If the length of `average` is not the store's number of scalars.
pub fn ema_step(store: &ParameterStore, average: &mut Tensor, decay: f64) -> Result<()> {
    crate::device::check(store.device())?;
    if average.elem_count() != store.len() {
        candle_core::bail!(
            "moving average: a buffer of {} values does not fit {} parameters",
            average.elem_count(),
            store.len()
        );
    }
    if !store.device().is_cpu() {
        *average = ((&*average * decay)? + (store.flat()? * (1.0 - decay))?)?.detach();
        return Ok(());
    }
    update_elements(average, |average| {
        // Frozen weights are skipped, because an average of equal numbers can differ from these
        // numbers in the last bit.
        for parameter in store.parameters().iter().filter(|parameter| !parameter.is_frozen()) {
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
