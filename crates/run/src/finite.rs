//! Check that the numbers in a model's answers are finite. It is needed because the computation can
//! overflow even if all weights are finite. Each kind of answer is checked in one place, where it
//! is computed.

use anyhow::Result;

/// Error of a computation that gave NaN or infinity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the computation gave a value that is not finite (NaN or infinite) in {quantity}: the weights may \
     have diverged, or the input may differ too much from the training data; check both, or try an \
     earlier checkpoint"
)]
pub struct NotFinite {
    /// Name of the quantity that is not finite.
    quantity: &'static str,
}

/// Refuses `values` unless all are finite; `quantity` names them in the error.
///
/// # Errors
/// [`NotFinite`], if a value is not finite.
pub(crate) fn require_finite(
    quantity: &'static str,
    values: impl IntoIterator<Item = impl Into<f64>>,
) -> Result<()> {
    match values.into_iter().all(|value| value.into().is_finite()) {
        true => Ok(()),
        false => Err(NotFinite { quantity }.into()),
    }
}
