//! The feed-forward layer: dense, or a mixture of experts.

use super::experts::Experts;
use super::weight::{Linear, Residual};
use crate::cost::PartCost;
use crate::{Builder, ModelConfig, Pass};
use candle_core::{Result, Tensor};
use taper_ops::Activation;
use taper_ops::rng::name_key;

/// Computes `W₂ dropout(activation(W₁ x + b₁)) + b₂` (Vaswani et al. 2017, section 3.3).
#[derive(Debug, Clone)]
pub(crate) struct DenseFeedForward {
    up: Linear,
    down: Linear,
    activation: Activation,
    dropout: f64,
    site: u64,
}

impl DenseFeedForward {
    pub(crate) fn new(
        build: &mut Builder,
        name: &str,
        site: u64,
        config: &ModelConfig,
    ) -> Result<Self> {
        Ok(Self {
            up: Linear::new(build, &format!("{name}.up"), config.d_model, config.d_ff, 1)?,
            down: Linear::new(build, &format!("{name}.down"), config.d_ff, config.d_model, 1)?,
            activation: config.activation.into(),
            dropout: config.feed_forward_dropout,
            site,
        })
    }

    /// Cost of both projections, and of the slopes of the nonlinearity; those of relu are the signs
    /// of its result.
    pub(crate) fn cost(config: &ModelConfig) -> PartCost {
        let up = PartCost::linear(config.d_model, config.d_ff, config.biases);
        let up = match Activation::from(config.activation) {
            Activation::Relu => up.forgetting(config.d_ff),
            _ => up.keeping(config.d_ff),
        };
        up + PartCost::linear(config.d_ff, config.d_model, config.biases)
    }

    /// The same layer in f64, for finite differences.
    #[cfg(test)]
    pub(crate) fn in_f64(&self) -> Self {
        Self { up: self.up.in_f64(), down: self.down.in_f64(), ..self.clone() }
    }

    /// Both matrices.
    #[cfg(test)]
    pub(crate) fn matrices(&self) -> [&super::weight::Weight; 2] {
        [self.up.weight(), self.down.weight()]
    }

    fn inner(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        self.up.activated(x, self.activation, pass.dropout(self.dropout, self.site), pass)
    }

    /// Runs the layer and adds the result to the residual: `(N, D)` → `(N, D)`.
    fn forward(&self, x: &Tensor, residual: Residual<'_>, pass: &Pass) -> Result<Tensor> {
        self.down.onto(&self.inner(x, pass)?, residual, pass)
    }

    /// Runs the layer by itself: `(N, D)` → `(N, D)`.
    pub(crate) fn alone(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        self.down.forward(&self.inner(x, pass)?, pass)
    }
}

/// Feed-forward part of a layer, after attention.
#[derive(Debug, Clone)]
pub(crate) enum FeedForward {
    Dense(DenseFeedForward),
    Experts(Experts),
}

impl FeedForward {
    /// Makes that of a layer of a stack, counted from 0.
    pub(crate) fn new(
        build: &mut Builder,
        name: &str,
        config: &ModelConfig,
        layer: usize,
    ) -> Result<Self> {
        Ok(if config.experts.are_in(layer) {
            Self::Experts(Experts::new(build, name, config)?)
        } else {
            Self::Dense(DenseFeedForward::new(build, name, name_key(name), config)?)
        })
    }

    pub(crate) fn cost(config: &ModelConfig, layer: usize) -> PartCost {
        if config.experts.are_in(layer) {
            Experts::cost(config)
        } else {
            DenseFeedForward::cost(config)
        }
    }

    /// Runs the layer and adds the result to the residual.
    ///
    /// # Shapes
    /// `(N, D)` → `(N, D)`.
    pub(crate) fn forward(
        &self,
        x: &Tensor,
        residual: Residual<'_>,
        pass: &Pass,
    ) -> Result<Tensor> {
        match self {
            Self::Dense(dense) => dense.forward(x, residual, pass),
            Self::Experts(experts) => experts.forward(x, residual, pass),
        }
    }
}
