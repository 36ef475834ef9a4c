//! Encodings of positions.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Encoding of a token's position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "kebab-case")]
pub enum Positions {
    /// Sine and cosine interleaved, added to the embedding (Vaswani et al. 2017, section 3.5); for
    /// images, half of the width encodes the row and half the column.
    #[default]
    Sinusoidal,
    /// Sines in the first half of the width, cosines in the second, as in Tensor2Tensor and Marian.
    /// Tensor2Tensor and Marian use other frequencies: see `sinusoid_frequencies`.
    SinusoidalHalves,
    /// A trained table, added to the embedding (Gehring et al. 2017); limits the length to
    /// `max_positions`.
    Learned,
    /// A trained bias by bucketed distance on the scores of self-attention (Raffel et al. 2020,
    /// section 2.1).
    T5,
    /// Queries and keys of self-attention rotated by their position (Su et al. 2021).
    Rotary,
    /// A fixed bias, linear in the distance, on the scores of self-attention (Press et al. 2022).
    Alibi,
    /// No positions. Layers that read tokens one after another, such as `mamba`, know the order
    /// without them, and a causal mask reveals it in part (Kazemnejad et al. 2023, "The Impact of
    /// Positional Encoding on Length Generalization in Transformers"). In an encoder with full
    /// attention, the order of words is lost.
    None,
}

impl Positions {
    /// Name of the encoding in recipes (configuration files).
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Sinusoidal => "sinusoidal",
            Self::SinusoidalHalves => "sinusoidal-halves",
            Self::Learned => "learned",
            Self::T5 => "t5",
            Self::Rotary => "rotary",
            Self::Alibi => "alibi",
            Self::None => "none",
        }
    }

    /// True if the positions are sinusoids.
    #[must_use]
    pub const fn are_sinusoids(self) -> bool {
        matches!(self, Self::Sinusoidal | Self::SinusoidalHalves)
    }

    /// True if the positions are added to embeddings.
    #[must_use]
    pub const fn are_added(self) -> bool {
        self.are_sinusoids() || matches!(self, Self::Learned)
    }
}

/// Frequencies of the sinusoids of `d` dimensions, from 1 for pair i = 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "lowercase")]
pub enum SinusoidFrequencies {
    /// `10000^(-2i/d)` (Vaswani et al. 2017, section 3.5), as in Transformers' MarianMT.
    #[default]
    Paper,
    /// `10000^(-i/(d/2 - 1))`, so that the last is 1/10000, as in Tensor2Tensor, Marian, and
    /// fairseq's M2M100 and NLLB.
    Tensor2Tensor,
}

impl SinusoidFrequencies {
    /// Number by which a position is divided to give the angle of a pair of dimensions; `pair` is
    /// the index of the pair, from 0, in a vector of `width` dimensions.
    #[must_use]
    pub fn divisor(self, pair: usize, width: usize) -> f64 {
        let last = (width / 2).saturating_sub(1).max(1);
        10_000_f64.powf(match self {
            Self::Paper => 2.0 * pair as f64 / width as f64,
            Self::Tensor2Tensor => pair as f64 / last as f64,
        })
    }

    pub(super) fn are_usual(&self) -> bool {
        *self == Self::Paper
    }
}
