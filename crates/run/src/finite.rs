//! Answers are made of numbers, and one that is NaN or infinite is no answer. Where answers are
//! made, of each kind in one place, such a number is refused: weights that are finite may still
//! overflow.

use anyhow::Result;

/// A computation gave a number that is NaN or infinite.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the computation gave a value that is not finite (NaN or infinite) in {what}: the weights may \
     have diverged, or the input be unlike all that they learned from; look at both, or try an \
     earlier checkpoint (--checkpoint)"
)]
pub struct NotFinite {
    /// What was computed.
    what: &'static str,
}

/// Refuses values of `what` that are not all finite.
///
/// # Errors
/// [`NotFinite`].
pub(crate) fn require_finite(
    what: &'static str,
    values: impl IntoIterator<Item = impl Into<f64>>,
) -> Result<()> {
    match values.into_iter().all(|value| value.into().is_finite()) {
        true => Ok(()),
        false => Err(NotFinite { what }.into()),
    }
}
