//! The optimizer Lion.

use candle_core::{Result, bail};
use taper_ops::{Piece, update_pieces};

use super::{Optimizer, OptimizerConfig, Part, Step};

/// Lion (Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms", algorithm 2), for a
/// weight θ, its gradient `g` and momentum `m`, the learning rate η and the weight decay λ, which
/// is 0 for parameters that are not matrices:
///
/// ```text
/// c ← β₁ m + (1 - β₁) g
/// θ ← θ - η (sign(c) + λ θ)
/// m ← β₂ m + (1 - β₂) g
/// ```
///
/// The paper uses β₁ = 0.9 and β₂ = 0.99, and for language models 0.95 and 0.98 (section 5).
#[derive(Debug)]
pub(super) struct Lion {
    pub(super) config: OptimizerConfig,
}

impl Optimizer for Lion {
    fn buffers(&self) -> &'static [&'static str] {
        &["momentum"]
    }

    fn step(&self, part: Part<'_>, step: &Step) -> Result<()> {
        if !part.store.device().is_cpu() {
            return self.composed_step(part, step);
        }
        let Part { store, range, gradient, state } = part;
        let [beta1, beta2] = [self.config.beta1, self.config.beta2].map(|beta| beta as f32);
        let (rate, scale) = (step.learning_rate as f32, step.gradient_scale as f32);
        update_pieces("lion", store, range, gradient, state, |piece| {
            let Piece { weights, gradient, mut state, parameter } = piece;
            let rate = rate * parameter.rate() as f32;
            let [momentum] = state.as_mut_slice() else { return };
            let decay = if parameter.is_matrix() { self.config.weight_decay as f32 } else { 0.0 };
            for ((weight, momentum), g) in weights.iter_mut().zip(&mut **momentum).zip(gradient) {
                let g = g * scale;
                *weight -= rate * (sign(beta1 * *momentum + (1.0 - beta1) * g) + decay * *weight);
                *momentum = beta2 * *momentum + (1.0 - beta2) * g;
            }
        })
    }
}

impl Lion {
    /// Makes the same step as [`Optimizer::step`], with plain Candle operations. It is the
    /// reference in tests, and is used on devices other than the CPU.
    fn composed_step(&self, part: Part<'_>, step: &Step) -> Result<()> {
        let Part { store, range, gradient, state } = part;
        let &OptimizerConfig { beta1, beta2, weight_decay, .. } = &self.config;
        let [momentum] = state else { bail!("lion must have one momentum") };
        let weights = store.part(range.clone())?;
        let gradient = (gradient * step.gradient_scale)?;
        let direction = ((&*momentum * beta1)? + (&gradient * (1.0 - beta1))?)?.sign()?;
        let decayed = (store.matrices(range.clone())?.times(&weights)? * weight_decay)?;
        let changed = ((&*momentum * beta2)? + (&gradient * (1.0 - beta2))?)?.detach();
        *momentum = store.kept_where_frozen(&range, changed, momentum)?;
        let update = ((direction + decayed)? * step.learning_rate)?;
        let update = store.rates(range.clone())?.times(&update)?;
        store.set_trained(range.start, &(weights - update)?)
    }
}

/// Sign of a number: -1, 0 or 1.
fn sign(x: f32) -> f32 {
    if x == 0.0 { 0.0 } else { x.signum() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OptimizerKind;
    use candle_core::{DType, Device, Tensor};
    use taper_ops::ParameterStore;

    /// Applies the algorithm of the paper to each weight, in f64. `decay` is the weight decay λ.
    fn by_hand(weights: &mut [f64], momentum: &mut [f64], gradient: &[f64], decay: f64) {
        let (eta, beta1, beta2) = (0.01, 0.9, 0.99);
        for ((weight, momentum), g) in weights.iter_mut().zip(momentum).zip(gradient) {
            let update = g * (1.0 - beta1) + *momentum * beta1;
            let sign = f64::from(i8::from(update > 0.0) - i8::from(update < 0.0));
            *momentum = g * (1.0 - beta2) + *momentum * beta2;
            *weight -= eta * (sign + decay * *weight);
        }
    }

    fn store() -> ParameterStore {
        let mut store = ParameterStore::new(&Device::Cpu);
        let values = |count: u16| (0..count).map(|i| (f32::from(i) * 0.37).sin()).collect();
        store.add("matrix", &[5, 4], values(20)).unwrap();
        store.add("bias", &[6], values(6)).unwrap();
        store
    }

    #[test]
    fn it_follows_the_paper() {
        let config = OptimizerConfig {
            kind: OptimizerKind::Lion,
            beta2: 0.99,
            weight_decay: 0.3,
            ..OptimizerConfig::default()
        };
        let lion = Lion { config };
        let (fused, composed) = (store(), store());
        let zeros = || [Tensor::zeros(26, DType::F32, &Device::Cpu).unwrap()];
        let (mut fused_state, mut composed_state) = (zeros(), zeros());
        let wide = |x: &Tensor| x.to_dtype(DType::F64).unwrap().to_vec1::<f64>().unwrap();
        let (mut weights, mut momentum) = (wide(&fused.flat().unwrap()), vec![0.0; 26]);
        for number in 1..=6u32 {
            // The gradients change their signs between steps. The gradient of the second value is
            // always zero.
            let values = |i: u32| if i == 1 { 0.0 } else { (f64::from(i * number) * 0.7).sin() };
            let gradient: Vec<f64> = (0..26).map(values).collect();
            let flat = Tensor::new(gradient.as_slice(), &Device::Cpu).unwrap();
            let flat = flat.to_dtype(DType::F32).unwrap();
            let step = Step { number: number.into(), learning_rate: 0.01, gradient_scale: 0.5 };
            for (store, state, is_fused) in
                [(&fused, &mut fused_state, true), (&composed, &mut composed_state, false)]
            {
                let part = Part { store, range: 0..26, gradient: &flat, state };
                let result =
                    if is_fused { lion.step(part, &step) } else { lion.composed_step(part, &step) };
                result.unwrap();
            }
            let halved: Vec<f64> = gradient.iter().map(|g| g / 2.0).collect();
            by_hand(&mut weights[..20], &mut momentum[..20], &halved[..20], 0.3);
            by_hand(&mut weights[20..], &mut momentum[20..], &halved[20..], 0.0);
        }
        for (got, expected) in [
            (&fused.flat().unwrap(), &weights),
            (&composed.flat().unwrap(), &weights),
            (&fused_state[0], &momentum),
            (&composed_state[0], &momentum),
        ] {
            for (got, expected) in wide(got).into_iter().zip(expected) {
                assert!((got - expected).abs() < 1e-6, "{got} {expected}");
            }
        }
        // A frozen parameter keeps its momentum, too.
        let ones = Tensor::ones(26, DType::F32, &Device::Cpu).unwrap();
        for (store, state) in [(&fused, &mut fused_state), (&composed, &mut composed_state)] {
            store.get("matrix").unwrap().freeze();
            let before = wide(&state[0]);
            let step = Step { number: 7, learning_rate: 0.01, gradient_scale: 0.5 };
            lion.composed_step(Part { store, range: 0..26, gradient: &ones, state }, &step)
                .unwrap();
            let after = wide(&state[0]);
            assert_eq!(after[..20], before[..20]);
            assert_ne!(after[20..], before[20..]);
        }
    }
}
