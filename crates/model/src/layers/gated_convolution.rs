//! A convolution over a sequence, followed by a gated linear unit (Gehring et al. 2017, section
//! 3.2).

use super::linear::Linear;
use crate::cost::PartCost;
use crate::{Builder, ModelConfig, Pass};
use candle_core::{Result, Tensor};
use std::sync::Arc;
use taper_ops::{Activation, Dropout, GatedSpec};

/// Computes `a ⊙ σ(b)` for each token t, where `[a; b] = W [x_{t-before}; …; x_{t+after}] + bias`.
/// Here x_t is the input row of token t, and the convolution sees `before` rows before it and
/// `after` rows after it.
#[derive(Debug, Clone)]
pub(crate) struct GatedConvolution {
    linear: Linear,
    /// Numbers of rows (tokens) that the convolution sees before and after each row.
    around: (usize, usize),
    width: usize,
}

/// The gated linear unit of Dauphin et al. 2017.
const GATE: GatedSpec = GatedSpec { activation: Activation::Sigmoid, dropout: Dropout::none() };

impl GatedConvolution {
    /// Makes the layer. A causal convolution sees each row and the rows before it; a convolution
    /// that is not causal sees equally many rows on both sides.
    pub(crate) fn new(
        build: &mut Builder,
        name: &str,
        config: &ModelConfig,
        causal: bool,
    ) -> Result<Self> {
        let (kernel, width) = (config.convolutional.kernel, config.d_model);
        let (inputs, halves) = (kernel.saturating_mul(width), width.saturating_mul(2));
        // A gate halves the standard deviation. Weights of twice the standard deviation compensate
        // for this (Gehring et al. 2017, appendix A).
        let deviation = (4.0 * (1.0 - config.residual_dropout) / inputs as f64).sqrt();
        let linear = Linear::normal(build, name, (inputs, halves), deviation)?;
        // The backward pass keeps the gathered neighbours, and the gated product of both halves.
        build.count(PartCost::kept(inputs).keeping(width));
        let before = if causal { kernel - 1 } else { kernel / 2 };
        Ok(Self { linear, around: (before, kernel - 1 - before), width })
    }

    /// Runs whole sequences.
    ///
    /// # Shapes
    /// `(N, D)` → `(N, D)` for N rows of the width D.
    pub(crate) fn forward(
        &self,
        x: &Tensor,
        lengths: &Arc<[usize]>,
        pass: &Pass,
    ) -> Result<Tensor> {
        let windows = taper_ops::windows(pass.tape(), x, lengths, self.around)?; // (N, K·D)
        taper_ops::gated(pass.tape(), &self.linear.forward(&windows, pass)?, &GATE)
    }

    /// Runs a causal convolution on one more row of each of R sequences. A convolution sees K rows:
    /// the new row, and the K - 1 rows before it, which are in `past (R, (K - 1)·D)`. Rows before
    /// the beginning of a sequence are zeros.
    ///
    /// # Shapes
    /// `x (R, D)` → `(R, D)`, and the `past` of the next row.
    pub(crate) fn step(&self, x: &Tensor, past: &Tensor, pass: &Pass) -> Result<(Tensor, Tensor)> {
        let window = Tensor::cat(&[past, x], 1)?; // (R, K·D)
        let next = window.narrow(1, self.width, past.dim(1)?)?.contiguous()?;
        Ok((taper_ops::gated(None, &self.linear.forward(&window, pass)?, &GATE)?, next))
    }

    /// Returns the `past` of the first row of each sequence: zeros.
    pub(crate) fn no_past(&self, like: &Tensor, rows: usize) -> Result<Tensor> {
        Tensor::zeros((rows, self.around.0 * self.width), like.dtype(), like.device())
    }
}
