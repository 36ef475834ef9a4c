//! Settings for computing the loss of a batch.

use super::Pass;
use crate::objective::Objective;

/// Settings for computing a loss: the objective, its scale, and the pass.
#[derive(Clone, Copy)]
pub struct LossSpec<'a> {
    /// Objective of training.
    pub objective: &'a Objective,
    /// Factor by which the sum over the answers is multiplied.
    pub scale: f64,
    /// The pass that computes the loss.
    pub pass: &'a Pass,
}
