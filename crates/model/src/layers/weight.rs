//! Parameters in layers.

use crate::Pass;
use candle_core::{Result, Tensor};

/// A parameter of a layer: tracked by autodiff for training, and detached for evaluation. Both
/// share one storage.
#[derive(Debug, Clone)]
pub(crate) struct Weight {
    tracked: Tensor,
    detached: Tensor,
}

impl Weight {
    pub(crate) fn new(tracked: Tensor) -> Self {
        Self { detached: tracked.detach(), tracked }
    }

    pub(crate) fn get(&self, pass: &Pass) -> &Tensor {
        if pass.is_training() { &self.tracked } else { &self.detached }
    }

    /// Values without gradients.
    pub(crate) fn value(&self) -> &Tensor {
        &self.detached
    }

    /// Converts the parameter to f64, tracked, for finite differences.
    #[cfg(test)]
    pub(crate) fn in_f64(&self) -> Self {
        let wide = self.tracked.to_dtype(candle_core::DType::F64).unwrap();
        let tracked = candle_core::Var::from_tensor(&wide.detach()).unwrap().into_inner();
        Self { detached: tracked.detach(), tracked }
    }

    /// Computes `residual + dropout(activation(x Wᵀ + bias))` for this matrix W. A residual or bias
    /// that is `None` is not added; activation and dropout are those of `spec`.
    pub(crate) fn apply(
        &self,
        x: &Tensor,
        bias: Option<&Tensor>,
        residual: Option<&Tensor>,
        spec: &taper_ops::LinearSpec,
        pass: &Pass,
    ) -> Result<Tensor> {
        match pass.packs() {
            Some(packs) => taper_ops::packed_linear(packs, x, self.get(pass), bias, residual, spec),
            None => taper_ops::linear(pass.tape(), x, self.get(pass), bias, residual, spec),
        }
    }
}
