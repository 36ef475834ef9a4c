//! Journey of one text through a model: its pieces, their vectors, the attention of each layer, the
//! hypotheses of a beam, and the probability of each next token or label.

mod page;
mod picture;
mod reading;
mod stations;
mod tokens;
mod translation;

pub use page::journey_page;
pub use picture::Picture;
pub use stations::{Choice, HeadInputs, Piece, StackVectors, VectorStep};

use serde::Serialize;

use super::AttentionLayer;
use crate::prediction::WordEvidence;

/// Lengths of the vectors of a stack's tokens.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StackNorms {
    /// Name of the stack: `encoder` or `decoder`.
    pub stack: String,
    /// Tokens of the stack.
    pub tokens: Vec<String>,
    /// Euclidean norms of each token's state: before the first layer, as the sum of token and
    /// position, and after each layer.
    pub norms: Vec<Vec<f32>>,
}

/// Token that the beam considered.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Branch {
    /// Index of the branch that it continues.
    pub parent: Option<usize>,
    /// Token of this branch.
    pub token: String,
    /// Log-probability of all tokens up to this one.
    pub log_probability: f64,
    /// Fate of the branch: `kept`, `finished` or `dropped`.
    pub fate: &'static str,
    /// True for a branch of the best translation.
    pub is_best: bool,
}

/// Translation found by the search.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FoundTranslation {
    /// Text of the translation.
    pub text: String,
    /// Length-normalised log-probability.
    pub score: f64,
    /// Log-probability.
    pub log_probability: f64,
}

/// Kind of what a model chooses at the end of a journey.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    /// Tokens of a translation, found by a search.
    #[default]
    Translation,
    /// Next token after each of a text.
    Text,
    /// Label of a text or an image.
    Label,
    /// Tag of each word of a text.
    Tags,
    /// Token for each hidden one.
    Hidden,
}

/// All stations of a text.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Journey {
    /// Task of the model, such as `translation`.
    pub task: String,
    /// Kind of the choices at its end.
    pub answer: Answer,
    /// Original text.
    pub text: String,
    /// Text after the tokenizer's normalisation.
    pub normalized: String,
    /// Image, if the tokens are patches of one; the text is its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub picture: Option<Picture>,
    /// Pieces of the text, with the special tokens that the model reads.
    pub pieces: Vec<Piece>,
    /// Kind of position encoding: the recipe's `model.positions`.
    pub positions: String,
    /// Norms of the vectors of each token, in encoder and decoder.
    pub norms: Vec<StackNorms>,
    /// Vectors of each token, in encoder and decoder.
    pub vectors: Vec<StackVectors>,
    /// Attention of each layer.
    pub attention: Vec<AttentionLayer>,
    /// Queries, keys and values of heads whose weights are `softmax(Q·Kᵀ·scale)`.
    pub heads: Vec<HeadInputs>,
    /// Branches of the beam, in the order of positions; empty without a search.
    pub beam: Vec<Branch>,
    /// Translations of the search, best first; empty without a search.
    pub found: Vec<FoundTranslation>,
    /// Choices of the model: the tokens of the best translation, ending with `</s>`; the next token
    /// at each place of a text, up to the one after its end; the tag of each word; each hidden
    /// token; or the label.
    pub choices: Vec<Choice>,
    /// Evidence that each word of a text gives for its label; empty if no text is labelled.
    pub evidence: Vec<WordEvidence>,
}
