//! Hyperparameters of one step of Muon (Jordan et al. 2024).

use super::AdamStep;

/// Hyperparameters of one step of Muon.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MuonStep {
    /// Hyperparameters of Adam, which updates parameters that are not projections (weight matrices
    /// of layers). The update of projections uses only the learning rate, the multiplier of the
    /// gradient, and the weight decay, which is always decoupled there.
    pub adam: AdamStep,
    /// Decay of the momentum of projections.
    pub momentum: f64,
}

/// Coefficients a, b and c of the polynomial `a X + b (X Xᵀ) X + c (X Xᵀ)² X`. Applied a few times,
/// it moves singular values in (0, 1] towards 1. It is fast rather than exact: the singular values
/// end between 0.7 and 1.2.
pub(crate) const POLYNOMIAL: [f32; 3] = [3.4445, -4.775, 2.0315];
/// Number of times that the polynomial is applied.
pub(crate) const ROUNDS: usize = 5;
/// Smallest divisor of a matrix. The divisor is the norm of the matrix, unless the norm is smaller.
pub(crate) const SMALLEST_NORM: f64 = 1e-7;

/// Returns the multiplier of the update of a matrix of this size. It makes the root mean square of
/// the update about 0.2, as in an update by Adam.
pub(crate) fn update_scale(rows: usize, columns: usize) -> f64 {
    0.2 * (rows.max(columns) as f64).sqrt()
}
