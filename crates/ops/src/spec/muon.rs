//! Hyperparameters of one step of Muon.

use super::AdamStep;

/// Hyperparameters of one step of Muon.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MuonStep {
    /// The step of Adam for parameters other than projections. Its learning rate, its decoupled
    /// weight decay and its factor of the gradient also apply to projections.
    pub adam: AdamStep,
    /// Decay of the momentum of projections.
    pub momentum: f64,
}

/// Coefficients of the polynomial `a X + b (X Xᵀ) X + c (X Xᵀ)² X`, which moves singular values in
/// (0, 1] towards 1 in a few rounds. It is fast rather than exact: they end between 0.7 and 1.2.
pub(crate) const POLYNOMIAL: [f32; 3] = [3.4445, -4.775, 2.0315];
/// Number of times that the polynomial is applied.
pub(crate) const ROUNDS: usize = 5;
/// Smallest norm that a direction is divided by.
pub(crate) const SMALLEST_NORM: f64 = 1e-7;

/// Factor that gives the update of a matrix the root mean square of Adam's updates, about 0.2.
pub(crate) fn update_scale(rows: usize, columns: usize) -> f64 {
    0.2 * (rows.max(columns) as f64).sqrt()
}
