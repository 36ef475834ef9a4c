//! Interfaces of what mixes a sequence's tokens within a layer: self-attention, or a state-space
//! layer.

use super::{LayerPast, PastRows, Texts, Within};
use crate::Pass;
use crate::layers::linear::Residual;
use candle_core::{Result, Tensor};
use std::fmt::Debug;

/// First sublayer of a layer.
pub(crate) trait Mixer: Debug + Send + Sync {
    /// Runs whole sequences, and adds the result to the residual.
    ///
    /// # Shapes
    /// `(N, D)` → `(N, D)`.
    fn forward(&self, x: &Tensor, residual: Residual<'_>, within: Within<'_>) -> Result<Tensor>;

    /// Runs one new token in each row, after the tokens before it; the history counts the new
    /// token already.
    ///
    /// # Shapes
    /// `(R, D)` → `(R, D)`.
    fn step(
        &self,
        x: &Tensor,
        residual: Residual<'_>,
        past: (&mut LayerPast, &PastRows<'_>),
        pass: &Pass,
    ) -> Result<Tensor>;

    /// Runs whole texts at once, like [`step`](Self::step) token by token.
    ///
    /// # Shapes
    /// `(N, D)` → `(N, D)`.
    fn read(
        &self,
        x: &Tensor,
        residual: Residual<'_>,
        past: (&mut LayerPast, &Texts<'_>),
        pass: &Pass,
    ) -> Result<Tensor>;
}

/// Computation between the projections of a layer.
pub(super) trait Unprojected: Debug + Send + Sync {
    /// Width of a row of the inputs.
    fn input_width(&self) -> usize;

    /// Attends within whole sequences.
    fn attend(&self, inputs: &Tensor, within: Within<'_>) -> Result<Tensor>;

    /// Scalars that are kept for the backward pass of one sequence of this length, not counting the
    /// input.
    fn kept(&self, length: usize) -> f64;

    /// Multiplications and additions for one sequence of this length.
    fn flops(&self, length: usize) -> f64;
}
