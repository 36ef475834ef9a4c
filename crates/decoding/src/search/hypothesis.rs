//! Finished translations and their scores.

use serde::Serialize;

use crate::{DecodingConfig, OutputLimits, SearchRules};

/// A finished translation with its scores.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Hypothesis {
    /// Output tokens, without `<s>` and `</s>`.
    pub tokens: Vec<u32>,
    /// Natural logarithm of the probability of the output tokens, including the closing `</s>` if
    /// the output has one.
    pub log_probability: f64,
    /// Natural logarithm of the probability of each token, given the tokens before it. If the
    /// output has a closing `</s>`, the last entry is that of `</s>`.
    pub token_log_probabilities: Vec<f64>,
    /// [Score](DecodingConfig::score), by which lists of hypotheses are sorted. Usually it is
    /// computed from the log-probability under the model. If repetition is penalised, it is
    /// computed from penalised log-probabilities instead. By the rules of the library Transformers,
    /// it does not include forced tokens.
    pub score: f64,
    /// Number of scored tokens: the output tokens, and the closing `</s>` if there is one. 0 only
    /// for the translation of an empty source, which needs no model.
    pub length: usize,
    /// Whether the output ended because it reached the maximum length. Such an output usually ends
    /// in the middle of a sentence or of a repetition.
    pub truncated: bool,
}

/// Tokens of an output with their probabilities, including that of the closing `</s>` if there is
/// one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Path {
    /// Output tokens, without `</s>`.
    pub(crate) tokens: Vec<u32>,
    /// Log-probability of each token under the model.
    pub(crate) token_log_probabilities: Vec<f64>,
    /// Sum of `token_log_probabilities`.
    pub(crate) log_probability: f64,
    /// Log-probability by which the search ranks the path. It differs from `log_probability` if
    /// repetition is penalised, or if forced tokens do not count in the score.
    pub(crate) rank: f64,
}

impl Path {
    /// Removes the closing `</s>` if the path ended at the maximum length, and `config.rules` are
    /// [`SearchRules::TransformersOpen`], by which no end is forced there.
    pub(crate) fn stopped(mut self, limits: OutputLimits, config: &DecodingConfig) -> Self {
        let has_end = self.token_log_probabilities.len() > self.tokens.len();
        let is_longest = self.tokens.len() >= limits.max_length;
        if config.rules == SearchRules::TransformersOpen && has_end && is_longest {
            self.token_log_probabilities.pop();
            self.log_probability = self.token_log_probabilities.iter().fold(0.0, |sum, x| sum + x);
        }
        self
    }
}

impl Hypothesis {
    /// Computes the score of a path, with or without a closing `</s>`.
    pub(crate) fn from_path(path: Path, limits: OutputLimits, config: &DecodingConfig) -> Self {
        let Path { tokens, token_log_probabilities, log_probability, rank } = path;
        let length = token_log_probabilities.len();
        let truncated = tokens.len() >= limits.max_length;
        let score = config.score(rank, length, limits);
        Self { tokens, log_probability, token_log_probabilities, score, length, truncated }
    }

    /// Returns the translation of an empty source: it is empty, with probability 1.
    pub(crate) fn empty() -> Self {
        Self {
            tokens: Vec::new(),
            log_probability: 0.0,
            token_log_probabilities: Vec::new(),
            score: 0.0,
            length: 0,
            truncated: false,
        }
    }
}
