//! Settings of a normalisation.

use candle_core::Tensor;

/// Normalisation of each row, without its parameters: `y = (x − mean) / √(variance + ε) · γ + β`
/// (Ba et al. 2016, "Layer Normalization"), or without the mean, `y = x / √(mean(x²) + ε) · γ`
/// (Zhang and Sennrich 2019, "Root Mean Square Layer Normalization").
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NormSpec {
    /// True if the mean is subtracted first.
    pub is_centred: bool,
    /// ε, added to the mean of the squares.
    pub epsilon: f64,
}

impl NormSpec {
    /// Settings of layer norm.
    #[must_use]
    pub const fn layer(epsilon: f64) -> Self {
        Self { is_centred: true, epsilon }
    }

    /// Settings of RMS norm.
    #[must_use]
    pub const fn rms(epsilon: f64) -> Self {
        Self { is_centred: false, epsilon }
    }

    /// Name in profiles.
    pub(crate) fn name(self) -> &'static str {
        if self.is_centred { "layer norm" } else { "RMS norm" }
    }
}

/// Neighbouring columns that are normalised in groups, each as wide as the weight.
#[derive(Debug, Clone, Copy)]
pub struct NormedColumns<'a> {
    /// Number of columns.
    pub columns: usize,
    /// γ, `(G,)`, the same for all groups.
    pub weight: &'a Tensor,
    /// β, `(G,)`.
    pub bias: Option<&'a Tensor>,
}
