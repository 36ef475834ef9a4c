//! The optimizers Adam and AdamW.

use candle_core::{Result, Tensor, bail};
use taper_ops::{AdamStep, adam_step};

use super::{Optimizer, OptimizerConfig, Part, Step};

/// Adam (Kingma and Ba 2015, algorithm 1, with bias correction). The weight decay is added to the
/// gradient. If `decoupled` is true, the weight decay is applied directly to the weights instead,
/// which is AdamW (Loshchilov and Hutter 2019, algorithm 2).
#[derive(Debug)]
pub(super) struct Adam {
    pub(super) config: OptimizerConfig,
    pub(super) decoupled: bool,
}

impl Optimizer for Adam {
    fn buffers(&self) -> &'static [&'static str] {
        &["first", "second"]
    }

    fn step(&self, part: Part<'_>, step: &Step) -> Result<()> {
        let Part { store, range, gradient, state } = part;
        let Ok(moments) = <&mut [Tensor; 2]>::try_from(state) else {
            bail!("adam must have two moments")
        };
        let numbers = numbers(&self.config, step, self.decoupled);
        adam_step(store, range, gradient, moments, &numbers)
    }
}

/// Returns the hyperparameters of one step as an [`AdamStep`].
pub(super) fn numbers(config: &OptimizerConfig, step: &Step, decoupled: bool) -> AdamStep {
    let &OptimizerConfig { beta1, beta2, epsilon, weight_decay, .. } = config;
    let &Step { number, learning_rate, gradient_scale } = step;
    AdamStep {
        learning_rate,
        beta1,
        beta2,
        epsilon,
        weight_decay,
        step: number,
        gradient_scale,
        decoupled,
    }
}
