//! Parts of a layer: its norms and its feed-forward network.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Position of the norm of a sublayer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "kebab-case")]
pub enum NormPlacement {
    /// `x + f(norm(x))`, with a final norm on each stack (Xiong et al. 2020).
    #[default]
    Pre,
    /// `norm(x + f(x))` (Vaswani et al. 2017).
    Post,
}

/// Kind of the norms of layers, of stacks and of embedded tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "kebab-case")]
pub enum NormKind {
    /// `(x − mean) / √(variance + ε) · γ + β` (Ba et al. 2016, "Layer Normalization").
    #[default]
    Layer,
    /// Layer normalisation without β.
    LayerWithoutBias,
    /// `x / √(mean(x²) + ε) · γ` (Zhang and Sennrich 2019, "Root Mean Square Layer
    /// Normalization"), as in T5 and Llama.
    Rms,
    /// Root mean square normalisation with `+ β`.
    RmsWithBias,
}

impl NormKind {
    /// Whether a norm of this kind has the parameter β.
    pub(crate) fn has_bias(self) -> bool {
        matches!(self, Self::Layer | Self::RmsWithBias)
    }
}

/// Norm of queries and keys before their products, of the kind of all norms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "kebab-case")]
pub enum QueryKeyNorm {
    /// No norm.
    #[default]
    None,
    /// A norm of each head, with one γ for all heads (Dehghani et al. 2023, "Scaling Vision
    /// Transformers to 22 Billion Parameters"), as in Qwen3.
    PerHead,
    /// One norm over all heads, as in OLMo 2.
    AllHeads,
}

impl QueryKeyNorm {
    /// Whether queries and keys have no norm.
    pub(super) fn is_none(&self) -> bool {
        *self == Self::None
    }
}

/// Kind of the feed-forward layers, and of each expert.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "kebab-case")]
pub enum FeedForwardKind {
    /// `W₂ f(W₁ x)`, with the nonlinearity f (Vaswani et al. 2017, section 3.3).
    #[default]
    Plain,
    /// `W₂ (V x ⊙ f(W₁ x))` (Shazeer 2020, "GLU Variants Improve Transformer"): with `"swish"`
    /// SwiGLU, with `"gelu"` GEGLU, with `"relu"` ReGLU. It has a third matrix: with two thirds of
    /// `d_ff` it has as many parameters as a plain layer.
    Gated,
}

impl FeedForwardKind {
    /// Number of matrices by which the input of the layer is multiplied.
    pub(crate) fn parts(self) -> usize {
        match self {
            Self::Plain => 1,
            Self::Gated => 2,
        }
    }
}

/// Whether the feed-forward layer runs in parallel with self-attention, and with which norm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "kebab-case")]
pub enum ParallelFeedForward {
    /// After self-attention, and after attention to an encoder: `y = x + A(norm(x))`, then `y +
    /// F(norm(y))`.
    #[default]
    None,
    /// In parallel, with the same norm: `x + A(norm(x)) + F(norm(x))`, as in GPT-J, PaLM (Chowdhery
    /// et al. 2022, section 2) and Phi. Attention to an encoder follows.
    SharedNorm,
    /// In parallel, with a separate norm: `x + A(norm₁(x)) + F(norm₂(x))`, as in GPT-NeoX (Black et
    /// al. 2022, section 2.1.2). Attention to an encoder follows.
    OwnNorm,
}

impl ParallelFeedForward {
    /// True if the feed-forward layer follows self-attention, instead of being parallel to it.
    pub(super) fn is_none(&self) -> bool {
        *self == Self::None
    }
}

/// Nonlinearity of the feed-forward layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "kebab-case")]
pub enum ActivationKind {
    /// `max(x, 0)`.
    #[default]
    Relu,
    /// `x · Φ(x)`, exact.
    Gelu,
    /// GELU approximated by a hyperbolic tangent, as in GPT-2.
    GeluTanh,
    /// `x · σ(x)`.
    Swish,
    /// `x · σ(1.702 x)`: GELU as CLIP approximates it.
    QuickGelu,
}

impl From<ActivationKind> for taper_ops::Activation {
    fn from(kind: ActivationKind) -> Self {
        match kind {
            ActivationKind::Relu => Self::Relu,
            ActivationKind::Gelu => Self::Gelu,
            ActivationKind::GeluTanh => Self::GeluTanh,
            ActivationKind::Swish => Self::Swish,
            ActivationKind::QuickGelu => Self::QuickGelu,
        }
    }
}
