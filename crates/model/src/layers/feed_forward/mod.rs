//! The feed-forward part of a layer: dense, or a mixture of experts.

mod dense;
mod experts;

use crate::layers::linear::Residual;
use crate::{Builder, ModelConfig, Pass};
use candle_core::{Result, Tensor};
use dense::DenseFeedForward;
use experts::Experts;
use taper_ops::rng::name_key;

/// Feed-forward part of a layer, after attention.
#[derive(Debug, Clone)]
pub(crate) enum FeedForward {
    Dense(DenseFeedForward),
    Experts(Experts),
}

impl FeedForward {
    /// Makes the feed-forward part of the layer with the index `layer`, from 0, in a stack.
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

    /// Runs the layer and adds the result to the residual.
    ///
    /// # Shapes
    /// `(N, D)` → `(N, D)`, for N tokens of the width D.
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
