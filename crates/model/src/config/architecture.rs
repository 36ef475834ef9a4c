//! Architectures of translation models: the kind of their layers, and the shape of layers that are
//! not a Transformer's.

use super::{ModelConfig, Positions};
use crate::ModelError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Layers of a translation model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "kebab-case")]
pub enum Architecture {
    /// Layers of attention (Vaswani et al. 2017).
    #[default]
    Transformer,
    /// GRUs or LSTMs, with or without attention (Sutskever et al. 2014; Bahdanau et al. 2015);
    /// `model.recurrent` has their shape.
    Recurrent,
    /// Gated convolutions with attention in each layer of the decoder (Gehring et al. 2017);
    /// `model.convolutional` has their shape.
    Convolutional,
}

impl Architecture {
    /// Name of the architecture in recipes (configuration files).
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Transformer => "transformer",
            Self::Recurrent => "recurrent",
            Self::Convolutional => "convolutional",
        }
    }
}

/// Cell of a recurrent layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "kebab-case")]
pub enum CellKind {
    /// Gated recurrent units (Cho et al. 2014).
    #[default]
    Gru,
    /// Long short-term memory (Hochreiter and Schmidhuber 1997).
    Lstm,
}

impl CellKind {
    /// Name of the cell in recipes (configuration files).
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gru => "gru",
            Self::Lstm => "lstm",
        }
    }
}

impl From<CellKind> for taper_ops::Cell {
    fn from(kind: CellKind) -> Self {
        match kind {
            CellKind::Gru => Self::Gru,
            CellKind::Lstm => Self::Lstm,
        }
    }
}

/// Attention of a recurrent decoder to the source, in addition to its initial state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "kebab-case")]
pub enum RecurrentAttention {
    /// No attention: the information about a sentence has to fit into one vector (Sutskever et al.
    /// 2014).
    None,
    /// Before each step, in the last layer, with scores `vᵀ tanh(W s + U h)` of the previous state
    /// (Bahdanau et al. 2015).
    #[default]
    Additive,
    /// After the last layer, with scores `s · (W h)` of its states ("general" in Luong et al. 2015,
    /// section 3.1), divided by the root of the width as in a Transformer. Nothing is fed back, so
    /// all positions are trained at once.
    Dot,
}

impl RecurrentAttention {
    /// Word that messages put before the noun "attention" to name this kind.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "no",
            Self::Additive => "additive",
            Self::Dot => "dot",
        }
    }
}

/// Shape of a recurrent translation model, in addition to the keys of all architectures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RecurrentConfig {
    /// Cell of the layers.
    pub cell: CellKind,
    /// Width of the states, in each direction.
    #[schemars(range(min = 1))]
    pub width: usize,
    /// Attention of the decoder to the source.
    pub attention: RecurrentAttention,
    /// Whether the encoder also reads from right to left.
    pub bidirectional: bool,
}

impl Default for RecurrentConfig {
    fn default() -> Self {
        Self {
            cell: CellKind::default(),
            width: 512,
            attention: RecurrentAttention::default(),
            bidirectional: true,
        }
    }
}

/// Shape of a convolutional translation model, in addition to the keys of all architectures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ConvolutionalConfig {
    /// Number of tokens that a convolution sees: in the encoder an odd number, centred on each
    /// token; in the decoder the token and the tokens before it.
    #[schemars(range(min = 1))]
    pub kernel: usize,
}

impl Default for ConvolutionalConfig {
    fn default() -> Self {
        Self { kernel: 3 }
    }
}

impl ModelConfig {
    /// Refuses architectures other than the Transformer, for models that support no other.
    ///
    /// # Errors
    /// If the architecture is not the Transformer; the error names the configuration key.
    pub fn require_transformer(&self) -> Result<(), ModelError> {
        match self.architecture {
            Architecture::Transformer => Ok(()),
            other => Err(ModelError::Config(format!(
                "model.architecture = \"{}\" is for the task \"translation\": leave it out",
                other.name()
            ))),
        }
    }

    /// Checks the layers of an architecture other than the Transformer.
    pub(super) fn validate_layers(&self) -> Result<(), ModelError> {
        self.validate_streams()?;
        let refuse = |message: String| Err(ModelError::Config(message));
        match self.architecture {
            Architecture::Convolutional => {
                let kernel = self.convolutional.kernel;
                if kernel.is_multiple_of(2) {
                    return refuse(format!(
                        "model.convolutional.kernel = {kernel}: it must be odd, so that a token of \
                         the encoder sees equally many tokens on each side"
                    ));
                }
                match self.positions {
                    Positions::T5 | Positions::Rotary | Positions::Alibi => refuse(
                        "a convolutional model has no self-attention, on which the model.positions \
                         of the recipe act: use \"sinusoidal\", \"sinusoidal-halves\" or \"learned\""
                            .to_owned(),
                    ),
                    _ => Ok(()),
                }
            }
            Architecture::Transformer | Architecture::Recurrent => Ok(()),
        }
    }
}
