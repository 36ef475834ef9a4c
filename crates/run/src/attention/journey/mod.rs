//! Journey of one text through a model, step by step: its pieces, their vectors, the attention of
//! each layer, the hypotheses of a beam, and the probability of each next token or label.

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

/// Lengths of the vectors of the tokens in a stack (encoder or decoder).
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StackNorms {
    /// Name of the stack: `encoder` or `decoder`.
    pub stack: String,
    /// Tokens of the stack.
    pub tokens: Vec<String>,
    /// Euclidean norm of each token's state. The first row is before the first layer, where the
    /// state is the sum of token and position; each further row is after a layer.
    pub norms: Vec<Vec<f32>>,
}

/// Node of the tree of a beam search: a token that the beam considered.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Branch {
    /// Index of the branch that this one continues; `None` at the beginning.
    pub parent: Option<usize>,
    /// Token of this branch.
    pub token: String,
    /// Log-probability of all tokens up to this one.
    pub log_probability: f64,
    /// Fate of the branch: `kept`, `finished` or `dropped`.
    pub fate: &'static str,
    /// True if the branch is part of the best translation.
    pub is_best: bool,
}

/// Translation that the search has found.
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
    /// Next token after each token of a text.
    Text,
    /// Label of a text or an image.
    Label,
    /// Tag of each word of a text.
    Tags,
    /// Token in place of each hidden one.
    Hidden,
}

/// Journey of a text or an image, with the numbers of all its stations.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Journey {
    /// Task of the model, such as `translation`.
    pub task: String,
    /// Final choice of the model.
    pub answer: Answer,
    /// Original text.
    pub text: String,
    /// Text after the tokenizer's normalisation.
    pub normalized: String,
    /// Image whose patches are the tokens, with its file name as `text`; `None` for a text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub picture: Option<Picture>,
    /// Pieces of the text, with the special tokens that the model reads.
    pub pieces: Vec<Piece>,
    /// Kind of position encoding: the recipe's `model.positions`.
    pub positions: String,
    /// Norms of each token's vectors, for each stack.
    pub norms: Vec<StackNorms>,
    /// Vectors of each token, for each stack.
    pub vectors: Vec<StackVectors>,
    /// Attention of each layer.
    pub attention: Vec<AttentionLayer>,
    /// Queries, keys and values of attention layers whose weights are exactly
    /// `softmax(Q·Kᵀ·scale)`.
    pub heads: Vec<HeadInputs>,
    /// Branches of the beam, by position in the translation; empty without a search.
    pub beam: Vec<Branch>,
    /// Translations of the search, best first; empty without a search.
    pub found: Vec<FoundTranslation>,
    /// Choices of the model, depending on `answer`: the tokens of the best translation, ending with
    /// `</s>`; the next token after each token of a text; the tag of each word; each hidden token;
    /// or the label.
    pub choices: Vec<Choice>,
    /// How much each word of a text speaks for its label; empty if no text is labelled.
    pub evidence: Vec<WordEvidence>,
}
