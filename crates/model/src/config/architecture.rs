//! What stands between the embeddings and the output of a translation model: the kind of layers, and
//! the shape of those that are no Transformer's.

use super::{ModelConfig, Positions};
use crate::ModelError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the layers of a translation model are.
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
    /// As recipes write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Transformer => "transformer",
            Self::Recurrent => "recurrent",
            Self::Convolutional => "convolutional",
        }
    }
}

/// How the state of a recurrent layer goes on.
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
    /// As recipes write it.
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

/// What a recurrent decoder sees of the source beside its initial state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "kebab-case")]
pub enum RecurrentAttention {
    /// Nothing: all that is known of a sentence has to fit into one vector (Sutskever et al. 2014).
    None,
    /// In the last layer, before each step, by scores `vᵀ tanh(W s + U h)` of the state before it
    /// (Bahdanau et al. 2015).
    #[default]
    Additive,
    /// After the last layer, by scores `s · (W h)` of its states, "general" in Luong et al. 2015,
    /// section 3.1, divided by the root of the width as a Transformer's are. Nothing is fed back,
    /// so that all positions train at once.
    Dot,
}

impl RecurrentAttention {
    /// The word before "attention".
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "no",
            Self::Additive => "additive",
            Self::Dot => "dot",
        }
    }
}

/// The shape of a recurrent translation model, beside the keys that all architectures have.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RecurrentConfig {
    /// How states go on.
    pub cell: CellKind,
    /// Width of the states, in each direction.
    #[schemars(range(min = 1))]
    pub width: usize,
    /// What the decoder sees of the source.
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

/// The shape of a convolutional translation model, beside the keys that all architectures have.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ConvolutionalConfig {
    /// Tokens that a convolution sees: of the encoder around each, an odd number; of the decoder it
    /// and those before it.
    #[schemars(range(min = 1))]
    pub kernel: usize,
}

impl Default for ConvolutionalConfig {
    fn default() -> Self {
        Self { kernel: 3 }
    }
}

impl ModelConfig {
    /// Refuses another architecture than the Transformer, for models that have no other.
    ///
    /// # Errors
    /// With the key that names it.
    pub fn require_transformer(&self) -> Result<(), ModelError> {
        match self.architecture {
            Architecture::Transformer => Ok(()),
            other => Err(ModelError::Config(format!(
                "model.architecture = \"{}\" is for the task \"translation\": leave it out",
                other.name()
            ))),
        }
    }

    /// Checks what the layers of [`Self::architecture`] need, which is no Transformer.
    pub(super) fn validate_layers(&self) -> Result<(), ModelError> {
        self.validate_streams()?;
        let refuse = |message: String| Err(ModelError::Config(message));
        match self.architecture {
            Architecture::Convolutional => {
                let kernel = self.convolutional.kernel;
                if kernel.is_multiple_of(2) {
                    return refuse(format!(
                        "model.convolutional.kernel = {kernel}: it must be odd, so that a token of \
                         the encoder sees as many on each side"
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

    /// Keys of architectures that change nothing beside others: whether that is so, why, and which.
    #[must_use]
    pub fn architecture_without_effect(
        &self,
    ) -> Vec<(bool, &'static str, &'static [&'static str])> {
        let own = self.architecture;
        vec![
            (
                own != Architecture::Recurrent,
                "model.architecture is not \"recurrent\"",
                &[
                    "model.recurrent.cell",
                    "model.recurrent.width",
                    "model.recurrent.attention",
                    "model.recurrent.bidirectional",
                ],
            ),
            (
                own != Architecture::Convolutional,
                "model.architecture is not \"convolutional\"",
                &["model.convolutional.kernel"],
            ),
            (
                own == Architecture::Recurrent,
                "model.architecture is \"recurrent\", which tells positions by its steps",
                &["model.positions", "model.max_positions"],
            ),
            (
                own != Architecture::Transformer,
                "model.architecture is not \"transformer\"",
                &[
                    "model.d_ff",
                    "model.heads",
                    "model.activation",
                    "model.norm",
                    "model.norm_epsilon",
                    "model.attention_biases",
                    "model.feed_forward_dropout",
                    "model.encoder_attention.kind",
                    "model.decoder_attention.kind",
                    "model.experts.count",
                ],
            ),
            (
                own == Architecture::Recurrent,
                "model.architecture is \"recurrent\", whose attention has no dropout of its own",
                &["model.attention_dropout"],
            ),
        ]
    }
}
