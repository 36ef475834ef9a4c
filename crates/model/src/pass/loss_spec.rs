//! Settings of the loss of a batch.

use super::Pass;
use crate::objective::Objective;

/// Settings of the loss of a pass: the objective, and the pass that computes it.
#[derive(Clone, Copy)]
pub struct LossSpec<'a> {
    /// Objective of training.
    pub objective: &'a Objective,
    /// Factor of the sum over the answers.
    pub scale: f64,
    /// The pass.
    pub pass: &'a Pass,
}
