//! Answers must consist of finite numbers. Each kind of answer is checked in one place, where it is
//! made, because finite weights may still overflow.

use anyhow::Result;

/// Error of a computation that gave NaN or infinity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the computation gave a value that is not finite (NaN or infinite) in {quantity}: the weights may \
     have diverged, or the input may differ too much from the training data; check both, or try an \
     earlier checkpoint (--checkpoint)"
)]
pub struct NotFinite {
    /// Name of the result.
    quantity: &'static str,
}

/// Refuses values of `what` unless all are finite.
///
/// # Errors
/// [`NotFinite`].
pub(crate) fn require_finite(
    quantity: &'static str,
    values: impl IntoIterator<Item = impl Into<f64>>,
) -> Result<()> {
    match values.into_iter().all(|value| value.into().is_finite()) {
        true => Ok(()),
        false => Err(NotFinite { quantity }.into()),
    }
}
