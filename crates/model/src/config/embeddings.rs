//! Token embeddings: which matrices are shared, and which initial values they have.

use crate::ModelError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Which embedding matrices are shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "kebab-case")]
pub enum Tied {
    /// Three separate matrices: source embedding, target embedding and output projection.
    None,
    /// The target embedding is the output projection (Press and Wolf 2017).
    Decoder,
    /// Source and target share one matrix, and the output has another, as in T5 v1.1 and mT5; needs
    /// a joint vocabulary.
    Embeddings,
    /// Source, target and output share one matrix; needs a joint vocabulary.
    #[default]
    All,
}

impl Tied {
    /// Name of the choice in recipes (configuration files).
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Decoder => "decoder",
            Self::Embeddings => "embeddings",
            Self::All => "all",
        }
    }

    /// True if the target embedding is also the output projection.
    #[must_use]
    pub fn ties_output(self) -> bool {
        matches!(self, Self::Decoder | Self::All)
    }

    /// True if source and target share one embedding.
    #[must_use]
    pub fn ties_embeddings(self) -> bool {
        matches!(self, Self::Embeddings | Self::All)
    }
}

/// Initial values of token embeddings other than drawn numbers, and whether they are trained.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EmbeddingsConfig {
    /// Word vectors of `d_model` dimensions for the tokens of the source or, if the model has one
    /// table, of all: a file of word2vec, gensim or GloVe, or the folder of `taper embeddings
    /// train`. A word that is a single token, alone or after a space, gives its vector to this
    /// token; the first such word in the file counts. All vectors are scaled by one factor, to the
    /// mean square of random vectors; other tokens keep random vectors.
    pub file: PathBuf,
    /// Word vectors for the tokens of the target, if they have a separate table.
    pub target_file: PathBuf,
    /// Whether the embedding of token i is 1 at index i and 0 elsewhere; `d_model` must be at least
    /// the number of tokens.
    pub one_hot: bool,
    /// Whether tables that start from word vectors or one-hot vectors are frozen. This includes the
    /// output projection if it is the same table.
    pub frozen: bool,
}

impl EmbeddingsConfig {
    /// Whether any table begins with word vectors or one-hot vectors instead of random ones.
    #[must_use]
    pub fn are_given(&self) -> bool {
        self.one_hot || !self.file.as_os_str().is_empty() || self.has_target()
    }

    /// Whether the tokens of the target have a separate file of word vectors.
    #[must_use]
    pub fn has_target(&self) -> bool {
        !self.target_file.as_os_str().is_empty()
    }

    /// Checks that the keys fit together.
    ///
    /// # Errors
    /// If they do not; the error names the keys.
    pub(super) fn validate(&self) -> Result<(), ModelError> {
        let refuse = |message: &str| Err(ModelError::Config(message.to_owned()));
        let has_file = !self.file.as_os_str().is_empty() || self.has_target();
        if self.one_hot && has_file {
            return refuse(
                "model.embeddings.one_hot = true and a file of vectors exclude each other: leave \
                 out one of them",
            );
        }
        if self.frozen && !self.are_given() {
            return refuse(
                "model.embeddings.frozen = true: embeddings that were drawn and are never trained \
                 tell tokens apart by chance alone; set model.embeddings.file or one_hot",
            );
        }
        Ok(())
    }
}
