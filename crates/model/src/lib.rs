//! The Transformer of "Attention Is All You Need" (Vaswani et al. 2017) and its variants. The
//! sequences of a batch are packed: they are stored one after the other, without padding.
//!
//! **Decision.** A model owns its parameters in an ordered store. For each parameter, a layer holds
//! two tensors that share the parameter's memory: automatic differentiation tracks one of them, for
//! training, and the other is detached, for evaluation. The alternative, a second copy of the model
//! for evaluation, could drift apart from the trained model.
//!
//! **Initialisation.** The weights of linear layers are drawn from the Xavier uniform distribution.
//! In a fused projection, where several matrices are stored as one (such as those of queries, keys
//! and values), each of them is drawn as a matrix of its own. Biases are zero. Embeddings are
//! normal with standard deviation `1/√d_model`. Layer norms begin with weights of one and biases of
//! zero. Each value is a function of the seed, the name of the parameter, and the index of the
//! value.
//!
//! ```
//! use candle_core::{DType, Device};
//! use taper_model::{Batch, Builder, Model, ModelConfig, Objective, Pass, Sequences, Transformer};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let layers = ModelConfig { encoder_layers: 1, decoder_layers: 1, ..Default::default() };
//! let config = ModelConfig { d_model: 16, d_ff: 32, heads: 2, ..layers };
//! let builder = Builder::seeded(1, &Device::Cpu, DType::F32);
//! let model = Transformer::new(&config, 11, 11, builder)?;
//! let source = Sequences::pack(&[vec![4, 5, 3], vec![6, 3]]);
//! let target = Sequences::pack(&[vec![2, 7], vec![2, 8]]);
//! let pass = Pass::train(1, 1, 0);
//! let batch = Batch::new(vec![source, target], vec![7, 3, 8, 3]);
//! let output = model.loss(&batch, &Objective::smoothed(0.1), 0.25, &pass)?;
//! let mut gradients = taper_ops::Gradients::new(model.parameters())?;
//! pass.backward(&output, model.parameters(), &mut gradients)?;
//! assert!(taper_ops::global_norm(gradients.flat()?)? > 0.0);
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod batch;
mod builder;
mod config;
mod cost;
mod language_model;
mod layers;
mod model;
mod objective;
mod pass;
mod pattern;
mod regression;
mod sequences;
#[cfg(test)]
#[path = "../tests/common/tensors.rs"]
mod tensors;
mod text_encoders;
mod text_inference;
mod translation;
mod vision;

pub use batch::Batch;
pub use builder::{Builder, ModelCore};
pub use config::{
    ActivationKind, Architecture, AttentionConfig, AttentionKind, BaseDtype, CellKind,
    ContrastiveConfig, ConvolutionalConfig, EmbeddingsConfig, ExpertsConfig, FeedForwardKind,
    ImageEncoder, LayerKinds, LoraConfig, ModelConfig, NormKind, NormPlacement,
    ParallelFeedForward, Pooling, Positions, QueryKeyNorm, RecurrentAttention, RecurrentConfig,
    RelativeBuckets, RotaryConfig, RotaryPairs, RotaryScaling, SinusoidFrequencies,
    StateSpaceConfig, Tied,
};
pub use cost::{Cost, LayerCost, StreamCost};
pub use language_model::LanguageModel;
pub use layers::attention::UnprojectedAttention;
pub use layers::linear::adapter::{is_adapter, set_magnitudes};
pub use layers::positions;
pub use model::{Model, cost_of};
pub use objective::{Guidance, LossOutput, Objective};
pub use pass::Pass;
pub use pass::loss_spec::LossSpec;
pub use pass::recorder::{AttentionRecord, ProjectionRecord, Records, StatePoint, StateRecord};
pub use pass::routing::Routing;
pub use pattern::matches;
pub use regression::InContextRegressor;
pub use sequences::Sequences;
pub use text_encoders::{MaskedLanguageModel, SpanExtractor, TextClassifier, TokenTagger};
pub use text_inference::{TextInference, TextState};
pub use translation::{DecodeState, EncoderOutput, Inference, Transformer, TranslationModel};
pub use vision::{ContrastiveModel, ImageCaptioner, ImageClassifier, ImageShape};

/// Errors of models.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// A model of this configuration cannot be built.
    #[error("{0}")]
    Config(String),
    /// The lengths of sequences do not describe their ids.
    #[error("a batch has {ids} ids, but its lengths sum to {lengths}")]
    Lengths {
        /// Number of ids.
        ids: usize,
        /// Sum of the lengths.
        lengths: usize,
    },
    /// The batch does not fit the model.
    #[error("{0}")]
    Batch(String),
    /// A decoding step needs exactly one token for each row (hypothesis) of the decoding state, and
    /// got another number of tokens.
    #[error("a decoding step got {tokens} tokens for {rows} rows")]
    Tokens {
        /// Number of tokens given.
        tokens: usize,
        /// Number of rows of the state.
        rows: usize,
    },
    /// The selected row does not exist in the decoding state.
    #[error("row {row} was selected of {rows}")]
    Row {
        /// Index of the row.
        row: usize,
        /// Number of rows of the state.
        rows: usize,
    },
    /// The tensor library failed.
    #[error(transparent)]
    Tensor(#[from] candle_core::Error),
}

/// Result of an operation of a model.
pub type Result<T, E = ModelError> = std::result::Result<T, E>;
