//! Rotary positions: their base, the elements that are rotated together, and scalings for sequences
//! longer than those in training.

use super::bounds;
use crate::ModelError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use taper_ops::{DualChunk, Pairs, Rotations, Turns};

/// Base of the frequencies in the paper of Su et al. 2021.
const BASE: f64 = 10_000.0;

/// Elements of a head that are rotated together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "kebab-case")]
pub enum RotaryPairs {
    /// An element of the first half of a head with one of the second half, as in GPT-NeoX and
    /// Llama.
    #[default]
    Halves,
    /// Neighbouring elements, as in the paper and in GPT-J.
    Interleaved,
}

/// Scaling of the rotary angles, or chunks of positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "kebab-case")]
pub enum RotaryScaling {
    /// None.
    #[default]
    None,
    /// Positions are divided by the factor (Chen et al. 2023).
    Interpolation,
    /// Slow angles are divided by the factor, and fast ones are kept: the base grows (bloc97 2023,
    /// "NTK-aware").
    Ntk,
    /// Angles with fewer rotations over `original_length` than `slow_rotations` are divided by the
    /// factor, and those with more than `fast_rotations` are kept. Angles between these two limits
    /// are interpolated by their number of rotations (Grattafiori et al. 2024, "The Llama 3 Herd of
    /// Models").
    Llama3,
    /// Like "llama3", but interpolated by the index of the angle; queries and keys are multiplied
    /// by `magnitude` (Peng et al. 2024, "YaRN").
    Yarn,
    /// Angles are kept. Positions restart in each chunk of `chunk` tokens, and earlier chunks are
    /// never farther from a query than `original_length` (An et al. 2024, "Training-Free
    /// Long-Context Scaling of Large Language Models"). For decoders.
    DualChunk,
}

impl RotaryScaling {
    /// Name of the scaling in recipes (configuration files).
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Interpolation => "interpolation",
            Self::Ntk => "ntk",
            Self::Llama3 => "llama3",
            Self::Yarn => "yarn",
            Self::DualChunk => "dual-chunk",
        }
    }

    /// True if the scaling depends on an angle's number of rotations over the original length.
    fn is_by_rotations(self) -> bool {
        matches!(self, Self::Llama3 | Self::Yarn)
    }

    /// Default of `fast_rotations`, the number of rotations above which an angle is kept: the
    /// values of YaRN and Llama 3.1.
    fn usual_fast_rotations(self) -> f64 {
        if self == Self::Yarn { 32.0 } else { 4.0 }
    }
}

/// Base, pairs and scaling of rotary positions. Set a scaling for a trained model, or train on with
/// it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RotaryConfig {
    /// Base of the frequencies: in a head of width d, the pair of elements with the index i,
    /// counted from 0, is rotated by the angle position / base^(2i/d). If it is not set: 10,000.
    #[schemars(range(min = 1.0))]
    #[serde(skip_serializing_if = "is_usual_base")]
    #[schemars(extend("x-names" = "rope_theta rotary_emb_base rope_base rotary_base"))]
    pub base: f64,
    /// Elements of a head that are rotated together. If it is not set: "halves".
    #[serde(skip_serializing_if = "are_halves")]
    pub pairs: RotaryPairs,
    /// Leading elements of each head that are rotated, an even number; the others keep their values
    /// (Black et al. 2022, "GPT-NeoX-20B", section 2.1.1). If it is not set: all.
    #[schemars(range(min = 2))]
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        extend("x-names" = "rotary_dim rotary_pct partial_rotary_factor rotary_ndims rope_dim")
    )]
    pub width: Option<usize>,
    /// Scaling of the rotary angles.
    #[schemars(extend("x-names" = "rope_scaling rope_type"), extend("x-weights" = ["changeable"]))]
    pub scaling: RotaryScaling,
    /// Length of sequences, as a multiple of those in training.
    #[schemars(range(min = 1.0, max = 1e6))]
    #[schemars(
        extend("x-weights" = ["changeable"]),
        extend("x-idle" = ["rotary-not-scaled", "rotary-dual-chunk"])
    )]
    pub factor: f64,
    /// Longest sequence of the original training, in tokens; "llama3", "yarn" and "dual-chunk" need
    /// it.
    #[schemars(range(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        extend("x-names" = "original_max_position_embeddings"),
        extend("x-weights" = ["changeable"]),
        extend("x-idle" = ["rotary-without-length"])
    )]
    pub original_length: Option<usize>,
    /// Rotations over `original_length` below which an angle is divided by the factor. If it is not
    /// set: 1, as in Llama 3.1 and YaRN.
    #[schemars(range(min = 0.0, max = 1e6))]
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        extend("x-names" = "low_freq_factor beta_slow"),
        extend("x-weights" = ["changeable"]),
        extend("x-idle" = ["rotary-not-by-rotations"])
    )]
    pub slow_rotations: Option<f64>,
    /// Rotations over `original_length` above which an angle is kept. If it is not set: 4 with
    /// "llama3", 32 with "yarn".
    #[schemars(range(min = 0.0, max = 1e6))]
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        extend("x-names" = "high_freq_factor beta_fast"),
        extend("x-weights" = ["changeable"]),
        extend("x-idle" = ["rotary-not-by-rotations"])
    )]
    pub fast_rotations: Option<f64>,
    /// Factor of rotated queries and keys with "yarn". If it is not set: 0.1 ln(factor) + 1.
    #[schemars(range(min = 1e-3, max = 1e3))]
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        extend("x-names" = "attention_factor"),
        extend("x-weights" = ["changeable"]),
        extend("x-idle" = ["rotary-not-yarn"])
    )]
    pub magnitude: Option<f64>,
    /// Tokens of a chunk with "dual-chunk". If it is not set: three quarters of `original_length`.
    #[schemars(range(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        extend("x-names" = "chunk_size"),
        extend("x-weights" = ["changeable"]),
        extend("x-idle" = ["rotary-not-dual-chunk"])
    )]
    pub chunk: Option<usize>,
    /// Number of tokens at the beginning of a chunk that see the previous chunk at true distances,
    /// with "dual-chunk". If it is not set: `original_length` − `chunk`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        extend("x-names" = "local_size"),
        extend("x-weights" = ["changeable"]),
        extend("x-idle" = ["rotary-not-dual-chunk"])
    )]
    pub local_window: Option<usize>,
}

impl Default for RotaryConfig {
    fn default() -> Self {
        Self {
            base: BASE,
            pairs: RotaryPairs::Halves,
            width: None,
            scaling: RotaryScaling::None,
            factor: 1.0,
            original_length: None,
            slow_rotations: None,
            fast_rotations: None,
            magnitude: None,
            chunk: None,
            local_window: None,
        }
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_usual_base(base: &f64) -> bool {
    *base == BASE
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn are_halves(pairs: &RotaryPairs) -> bool {
    *pairs == RotaryPairs::Halves
}

impl RotaryConfig {
    /// Returns the rotation for heads of the width `head`.
    #[must_use]
    pub fn turns(self, head: usize) -> Turns {
        let all = Turns::with_base(self.base).of_pairs(match self.pairs {
            RotaryPairs::Halves => Pairs::Halves,
            RotaryPairs::Interleaved => Pairs::Interleaved,
        });
        let plain = self.width.map_or(all, |width| all.of_width(width));
        match self.scaling {
            RotaryScaling::None | RotaryScaling::DualChunk => plain,
            RotaryScaling::Interpolation => plain.interpolated(self.factor),
            RotaryScaling::Ntk => plain.ntk(self.factor, self.width.unwrap_or(head)),
            RotaryScaling::Llama3 => plain.llama3(self.rotations()),
            RotaryScaling::Yarn => plain.yarn(self.rotations(), self.magnitude),
        }
    }

    /// Returns the chunks in which positions restart; `None` without dual chunk attention.
    #[must_use]
    pub fn dual_chunk(self) -> Option<DualChunk> {
        // `original_length` is always set if there are chunks, because `validate` requires it, so
        // the 1 is never used then.
        let trained = self.original_length.unwrap_or(1);
        let chunk = self.chunk.unwrap_or((trained.saturating_mul(3) / 4).max(1));
        let window = self.local_window.unwrap_or(trained.saturating_sub(chunk));
        (self.scaling == RotaryScaling::DualChunk).then_some(DualChunk { chunk, window, trained })
    }

    fn rotations(self) -> Rotations {
        Rotations {
            factor: self.factor,
            // `original_length` is always set if the number of rotations matters, because
            // `validate` requires it, so the 1 is never used.
            original_length: self.original_length.unwrap_or(1) as f64,
            slow: self.slow_rotations.unwrap_or(1.0),
            fast: self.fast_rotations.unwrap_or(self.scaling.usual_fast_rotations()),
        }
    }

    /// Checks the settings for heads of the width `head`.
    pub(super) fn validate(self, head: usize) -> Result<(), ModelError> {
        bounds::number("model.rotary.base", self.base, 1.0..=1e12)?;
        bounds::number("model.rotary.factor", self.factor, 1.0..=1e6)?;
        for (key, value, bounds) in [
            ("model.rotary.slow_rotations", self.slow_rotations, 0.0..=1e6),
            ("model.rotary.fast_rotations", self.fast_rotations, 0.0..=1e6),
            ("model.rotary.magnitude", self.magnitude, 1e-3..=1e3),
        ] {
            value.map_or(Ok(()), |value| bounds::number(key, value, bounds))?;
        }
        if let Some(length) = self.original_length {
            bounds::size("model.rotary.original_length", length, bounds::TOKENS)?;
        }
        let refuse = |message: String| Err(ModelError::Config(message));
        if let Some(width) = self.width
            && (width < 2 || width > head || !width.is_multiple_of(2))
        {
            return refuse(format!(
                "model.rotary.width = {width}: it must be an even number from 2 to {head}, the \
                 width of a head"
            ));
        }
        let chunks = self.dual_chunk();
        if !self.scaling.is_by_rotations() && chunks.is_none() {
            return Ok(());
        }
        if self.original_length.is_none() {
            return refuse(
                "model.rotary.scaling = \"llama3\" and \"yarn\" count rotations over the longest \
                 sequence of the original training, and \"dual-chunk\" divides it: set \
                 model.rotary.original_length"
                    .to_owned(),
            );
        }
        if let Some(chunks) = chunks {
            return chunks.fault().map_or(Ok(()), |fault| {
                refuse(format!(
                    "model.rotary.chunk is {}, model.rotary.local_window is {} and \
                     model.rotary.original_length is {}: {fault}",
                    chunks.chunk, chunks.window, chunks.trained
                ))
            });
        }
        let Rotations { slow, fast, .. } = self.rotations();
        let needs_positive = self.scaling == RotaryScaling::Yarn;
        if slow >= fast || (needs_positive && slow == 0.0) {
            let lowest = if needs_positive { "above 0 and " } else { "" };
            return refuse(format!(
                "model.rotary.slow_rotations is {slow} and model.rotary.fast_rotations is {fast}: \
                 the first must be {lowest}below the second"
            ));
        }
        if self.scaling == RotaryScaling::Yarn && self.base == 1.0 {
            return refuse(
                "model.rotary.base = 1.0 lets all pairs rotate alike, so that \"yarn\" cannot tell \
                 slow from fast"
                    .to_owned(),
            );
        }
        Ok(())
    }
}
