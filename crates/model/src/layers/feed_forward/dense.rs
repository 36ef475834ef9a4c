//! The dense feed-forward layer: plain or gated.

use crate::config::FeedForwardKind;
use crate::cost::PartCost;
use crate::layers::linear::{Linear, Residual};
use crate::{Builder, ModelConfig, Pass};
use candle_core::{Result, Tensor};
use taper_ops::{Activation, GatedSpec};

/// Computes `W₂ dropout(h) + b₂`. In a plain layer, `h = activation(W₁ x + b₁)` (Vaswani et al.
/// 2017, section 3.3); in a gated layer, `h = (V x + c) ⊙ activation(W₁ x + b₁)` (Shazeer 2020).
///
/// In a gated layer, the matrix `up` has the rows of V, followed by those of W₁.
#[derive(Debug, Clone)]
pub(crate) struct DenseFeedForward {
    up: Linear,
    down: Linear,
    kind: FeedForwardKind,
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
        let (outer, inner, kind) = (config.d_model, config.d_ff, config.feed_forward);
        let parts = kind.parts();
        let make = |build: &mut Builder| {
            let up = Linear::new(build, &format!("{name}.up"), outer, parts * inner, parts)?;
            Ok((up, Linear::new(build, &format!("{name}.down"), inner, outer, 1)?))
        };
        let (up, down) = build.with_biases_if(config.has_feed_forward_biases(), make)?;
        // Between its two matrices, a gated layer keeps the gated product for the backward pass,
        // and a plain layer keeps the derivatives of the nonlinearity. With relu, a plain layer
        // keeps nothing there, because the signs of the result give the derivatives.
        build.count(match (kind, Activation::from(config.activation)) {
            (FeedForwardKind::Plain, Activation::Relu) => PartCost::default().forgetting(inner),
            _ => PartCost::kept(inner),
        });
        Ok(Self {
            up,
            down,
            kind,
            activation: config.activation.into(),
            dropout: config.feed_forward_dropout,
            site,
        })
    }

    /// Converts the layer to f64, for finite differences.
    #[cfg(test)]
    pub(crate) fn in_f64(&self) -> Self {
        Self { up: self.up.in_f64(), down: self.down.in_f64(), ..self.clone() }
    }

    /// Returns both matrices.
    #[cfg(test)]
    pub(crate) fn matrices(&self) -> [&crate::layers::weight::Weight; 2] {
        [self.up.weight(), self.down.weight()]
    }

    fn inner(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let (activation, dropout) = (self.activation, pass.dropout(self.dropout, self.site));
        match self.kind {
            FeedForwardKind::Plain => self.up.activated(x, activation, dropout, pass),
            FeedForwardKind::Gated => {
                let halves = self.up.forward(x, pass)?; // (N, 2·F), F = `d_ff`
                taper_ops::gated(pass.tape(), &halves, &GatedSpec { activation, dropout })
            }
        }
    }

    /// Runs the layer and adds the result to the residual: `(N, D)` → `(N, D)` for N tokens of the
    /// width D.
    pub(crate) fn forward(
        &self,
        x: &Tensor,
        residual: Residual<'_>,
        pass: &Pass,
    ) -> Result<Tensor> {
        self.down.onto(&self.inner(x, pass)?, residual, pass)
    }

    /// Runs the layer without a residual: `(N, D)` → `(N, D)`.
    pub(crate) fn alone(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        self.down.forward(&self.inner(x, pass)?, pass)
    }
}
