//! Exponential moving average of the weights (Polyak and Juditsky 1992).

use crate::host::{Host, update_elements};
use crate::tape::{Parameter, ParameterStore};
use candle_core::{Result, Tensor};

/// Updates the exponential moving average of the weights:
/// `average ← decay · average + (1 - decay) · weights`. Averages of frozen weights are not updated,
/// because an average of equal numbers can differ from these numbers in the last bit.
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
        *average = averaged(store, average, decay)?.detach();
        return Ok(());
    }
    update_elements(average, |average| {
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

/// Returns the updated average, composed of Candle's operations.
fn averaged(store: &ParameterStore, average: &Tensor, decay: f64) -> Result<Tensor> {
    let next = ((average * decay)? + (store.flat()? * (1.0 - decay))?)?;
    if !store.parameters().iter().any(Parameter::is_frozen) {
        return Ok(next);
    }
    let runs = store.parameters().chunk_by(|one, other| one.is_frozen() == other.is_frozen());
    let parts = runs.map(|run| {
        let from = if run[0].is_frozen() { average } else { &next };
        from.narrow(0, run[0].offset(), run.iter().map(Parameter::len).sum())
    });
    Tensor::cat(&parts.collect::<Result<Vec<_>>>()?, 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Device;

    #[test]
    fn averages_of_frozen_weights_keep_their_bits_on_every_device() -> Result<()> {
        let mut store = ParameterStore::new(&Device::Cpu);
        let value = |i: usize| (i as f32 * 0.7).sin();
        for (name, count) in [("first", 40), ("frozen", 50), ("third", 3), ("also frozen", 7)] {
            store.add(name, &[count], (0..count).map(value).collect())?;
        }
        let average = store.flat()?;
        let unfrozen = averaged(&store, &average, 0.9)?.to_vec1::<f32>()?;
        assert_ne!(unfrozen[40..90], average.to_vec1::<f32>()?[40..90], "rounding");
        store.parameters()[1].freeze();
        store.parameters()[3].freeze();
        for average in [average.clone(), (average * 2.0)?] {
            let composed = averaged(&store, &average, 0.9)?.to_vec1::<f32>()?;
            let before = average.to_vec1::<f32>()?;
            let mut fused = average.copy()?;
            ema_step(&store, &mut fused, 0.9)?;
            let fused = fused.to_vec1::<f32>()?;
            for range in [40..90, 93..100] {
                assert_eq!(composed[range.clone()], before[range.clone()]);
                assert_eq!(fused[range.clone()], before[range]);
            }
            for (fused, composed) in fused.iter().zip(&composed) {
                assert!((fused - composed).abs() < 1e-6, "{fused} {composed}");
            }
        }
        Ok(())
    }
}
