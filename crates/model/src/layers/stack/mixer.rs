//! Mixing of a sequence's tokens within a layer: self-attention, or a state-space layer.

use crate::layers::attention::{LayerPast, PastRows, SelfAttention, Texts, Within};
use crate::layers::linear::Residual;
use crate::layers::state_space::StateSpace;
use crate::{Builder, ModelConfig, Pass};
use candle_core::{Result, Tensor};

/// First sublayer of a layer.
#[derive(Debug, Clone)]
pub(crate) enum Mixer {
    Attention(SelfAttention),
    StateSpace(StateSpace),
}

impl Mixer {
    /// Makes the mixer of a layer, counted from 0, of a stack that is causal or not.
    pub(crate) fn new(
        build: &mut Builder,
        name: &str,
        config: &ModelConfig,
        at: (bool, usize),
    ) -> Result<Self> {
        Ok(match config.attention(at.0).kind_of(at.1).is_state_space() {
            true => Self::StateSpace(StateSpace::new(build, name, config, at)?),
            false => Self::Attention(SelfAttention::new(build, name, config, at)?),
        })
    }

    /// Runs whole sequences, and adds the result to the residual.
    ///
    /// # Shapes
    /// `(N, D)` → `(N, D)`.
    pub(crate) fn forward(
        &self,
        x: &Tensor,
        residual: Residual<'_>,
        within: Within<'_>,
    ) -> Result<Tensor> {
        match self {
            Self::Attention(layer) => layer.forward(x, residual, within),
            Self::StateSpace(layer) => layer.forward(x, residual, within.lengths, within.pass),
        }
    }

    /// Runs one new token in each row; see [`SelfAttention::step`].
    ///
    /// # Shapes
    /// `(R, D)` → `(R, D)`.
    pub(crate) fn step(
        &self,
        x: &Tensor,
        residual: Residual<'_>,
        past: (&mut LayerPast, &PastRows<'_>),
        pass: &Pass,
    ) -> Result<Tensor> {
        match self {
            Self::Attention(layer) => layer.step(x, residual, past, pass),
            Self::StateSpace(layer) => layer.step(x, residual, past.0, pass),
        }
    }

    /// Runs whole texts at once; see [`SelfAttention::read`].
    ///
    /// # Shapes
    /// `(N, D)` → `(N, D)`.
    pub(crate) fn read(
        &self,
        x: &Tensor,
        residual: Residual<'_>,
        past: (&mut LayerPast, &Texts<'_>),
        pass: &Pass,
    ) -> Result<Tensor> {
        match self {
            Self::Attention(layer) => layer.read(x, residual, past, pass),
            Self::StateSpace(layer) => layer.read(x, residual, past, pass),
        }
    }
}
