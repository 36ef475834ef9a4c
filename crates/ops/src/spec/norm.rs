//! Settings of normalisations (layer norm and RMS norm).

use candle_core::Tensor;

/// Normalisation of each row `x`, without its parameters. Layer norm computes
/// `y = (x − mean) / √(variance + ε) · γ + β` (Ba et al. 2016, "Layer Normalization"); RMS norm
/// computes `y = x / √(mean(x²) + ε) · γ` (Zhang and Sennrich 2019, "Root Mean Square Layer
/// Normalization").
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NormSpec {
    /// Whether the mean is subtracted first: `true` for layer norm, `false` for RMS norm.
    pub is_centred: bool,
    /// ε, added to the variance or to the mean of the squares.
    pub epsilon: f64,
}

impl NormSpec {
    /// Returns the settings of layer norm.
    #[must_use]
    pub const fn layer(epsilon: f64) -> Self {
        Self { is_centred: true, epsilon }
    }

    /// Returns the settings of RMS norm.
    #[must_use]
    pub const fn rms(epsilon: f64) -> Self {
        Self { is_centred: false, epsilon }
    }

    /// Returns the name in profiles.
    pub(crate) fn name(self) -> &'static str {
        if self.is_centred { "layer norm" } else { "RMS norm" }
    }
}

/// Leading columns of a tensor, normalised in groups of neighbouring columns; each group is as wide
/// as the weight.
#[derive(Debug, Clone, Copy)]
pub struct NormedColumns<'a> {
    /// Number of columns to normalise.
    pub columns: usize,
    /// γ, `(G,)`, the same for all groups.
    pub weight: &'a Tensor,
    /// β, `(G,)`.
    pub bias: Option<&'a Tensor>,
}
