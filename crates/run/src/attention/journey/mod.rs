//! What a model computes on its way from one text or image to its answer, step by step: the pieces
//! (tokens), their vectors, the attention of each layer, the hypotheses of a beam, and the
//! probability of each next token or label.

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

/// Norms of the state vectors of all tokens in a stack (encoder or decoder).
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StackNorms {
    /// Name of the stack: `encoder` or `decoder`.
    pub stack: String,
    /// Tokens of the stack.
    pub tokens: Vec<String>,
    /// Euclidean norm of each token's state (columns) at each depth (rows). The first row is before
    /// the first layer, where the state is the sum of the vectors of token and position; each
    /// further row is after a layer.
    pub norms: Vec<Vec<f32>>,
}

/// Branch of a beam search: a token that the search considered, as the first token or as the
/// continuation of an earlier branch.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Branch {
    /// Index of the branch that this branch continues; `None` for a first token.
    pub parent: Option<usize>,
    /// Token of this branch.
    pub token: String,
    /// Sum of the log-probabilities of all tokens from the beginning up to and including this
    /// token.
    pub log_probability: f64,
    /// Outcome of the branch in the search: `kept`, `finished` or `dropped`.
    pub fate: &'static str,
    /// Whether the token of the branch is part of the best translation.
    pub is_best: bool,
}

/// Translation that a beam search has found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FoundTranslation {
    /// Text of the translation.
    pub text: String,
    /// Score by which translations are ordered: the log-probability, normalised by the length.
    pub score: f64,
    /// Sum of the log-probabilities of all tokens.
    pub log_probability: f64,
}

/// Kind of answer that a model gives at the end of a journey.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    /// Tokens of a translation or caption, found by a search.
    #[default]
    Translation,
    /// Next token after each token of a text.
    Text,
    /// Label of a text or an image.
    Label,
    /// Tag of each word of a text.
    Tags,
    /// Original token at each hidden place.
    Hidden,
}

/// Journey of a text or an image through a model, with the values computed at every step.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Journey {
    /// Task of the model, such as `translation`.
    pub task: String,
    /// Kind of answer that the model gives at the end.
    pub answer: Answer,
    /// Text as it was given; for an image, its file name.
    pub text: String,
    /// Text after the tokenizer's normalisation.
    pub normalized: String,
    /// Image whose patches are the tokens; `None` if the model reads a text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub picture: Option<Picture>,
    /// Pieces of the text, with the special tokens that the model reads.
    pub pieces: Vec<Piece>,
    /// Kind of position encoding: the value of `model.positions` in the settings of the training.
    pub positions: String,
    /// Norms of the tokens' vectors before and after each layer, for each stack (encoder or
    /// decoder).
    pub norms: Vec<StackNorms>,
    /// Vectors of the tokens at each step, for each stack.
    pub vectors: Vec<StackVectors>,
    /// Attention weights of each layer.
    pub attention: Vec<AttentionLayer>,
    /// Queries, keys and values of the attention layers whose weights are `softmax(Q·Kᵀ·scale)`, up
    /// to rounding. Layers that change the scores, for example by adding biases, are left out.
    pub heads: Vec<HeadInputs>,
    /// Branches of the beam, in the order of their positions in the translation; empty if the model
    /// does not search.
    pub beam: Vec<Branch>,
    /// Translations of the search, best first; empty if the model does not search.
    pub found: Vec<FoundTranslation>,
    /// Choices of the model, depending on `answer`: the tokens of the best translation, ending with
    /// `</s>`; the next token after each token of a text; the tag of each word; the token at each
    /// hidden place; or the label.
    pub choices: Vec<Choice>,
    /// Effect of each word of the text on the probability of the text's label; empty if the model
    /// does not label texts.
    pub evidence: Vec<WordEvidence>,
}
