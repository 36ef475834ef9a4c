//! Check that answers consist of finite numbers. It is needed because even finite weights may
//! overflow. Each kind of answer is checked in one place, where it is computed.

use anyhow::Result;

/// Error of a computation that gave NaN or infinity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the computation gave a value that is not finite (NaN or infinite) in {quantity}: the weights may \
     have diverged, or the input may differ too much from the training data; check both, or try an \
     earlier checkpoint (--checkpoint)"
)]
pub struct NotFinite {
    /// Name of the quantity that is not finite.
    quantity: &'static str,
}

/// Refuses `values` unless all are finite; `quantity` is what the error calls them.
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
