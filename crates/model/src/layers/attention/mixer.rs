//! Interfaces of the part of a layer that mixes the tokens of a sequence: self-attention, or a
//! state-space layer.

use super::{LayerPast, PastRows, Texts, Within};
use crate::Pass;
use crate::layers::linear::Residual;
use candle_core::{Result, Tensor};
use std::fmt::Debug;

/// First sublayer of a layer, which mixes the tokens of a sequence.
///
/// In the shapes, N is the number of tokens, R the number of rows (texts that are decoded), and D
/// the width of the model.
pub(crate) trait Mixer: Debug + Send + Sync {
    /// Runs on whole sequences, and adds the result to the residual.
    ///
    /// # Shapes
    /// `(N, D)` → `(N, D)`.
    fn forward(&self, x: &Tensor, residual: Residual<'_>, within: Within<'_>) -> Result<Tensor>;

    /// Runs on one new token in each row (a text that is decoded), which follows the past tokens of
    /// the row. The history in `past` already includes the new token.
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

    /// Runs on whole texts at once, with the same result as calling [`step`](Self::step) for each
    /// token.
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

    /// Adds whole texts to the past as [`read`](Self::read) does, for a layer whose result is not
    /// used.
    fn remember(&self, x: &Tensor, past: (&mut LayerPast, &Texts<'_>), pass: &Pass) -> Result<()>;
}

/// Computation between the projections of a layer.
pub(super) trait Unprojected: Debug + Send + Sync {
    /// Width of a row of the `inputs` of [`attend`](Self::attend).
    fn input_width(&self) -> usize;

    /// Attends within whole sequences.
    fn attend(&self, inputs: &Tensor, within: Within<'_>) -> Result<Tensor>;

    /// Number of scalars that are kept for the backward pass of one sequence of this length, not
    /// counting the input.
    fn kept(&self, length: usize) -> f64;

    /// Number of multiplications and additions for one sequence of this length.
    fn flops(&self, length: usize) -> f64;
}
