//! Finished translations and their scores.

use serde::Serialize;

use crate::{DecodingConfig, OutputLimits, SearchRules};

/// One finished translation with its scores.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Hypothesis {
    /// Output tokens, without `<s>` and `</s>`.
    pub tokens: Vec<u32>,
    /// Natural logarithm of the probability of the tokens, and of the closing `</s>` if the output
    /// has one.
    pub log_probability: f64,
    /// Natural logarithm of the probability of each token given the tokens before it, with `</s>`
    /// last.
    pub token_log_probabilities: Vec<f64>,
    /// [Score](DecodingConfig::score) of the log-probability, from which the repetition penalty has
    /// been subtracted if there is one. N-best lists are sorted by it.
    pub score: f64,
    /// Number of scored tokens: the output tokens, and the closing `</s>` if there is one. 0 only
    /// for the translation of an empty source, which no model has scored.
    pub length: usize,
    /// True if the output ends only because it reached the maximum length. It then usually ends in
    /// the middle of a sentence or of a repetition.
    pub truncated: bool,
}

/// Tokens of an output with their probabilities, including the closing `</s>` if there is one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Path {
    /// Output tokens, without `</s>`.
    pub(crate) tokens: Vec<u32>,
    /// Log-probability of each token under the model.
    pub(crate) token_log_probabilities: Vec<f64>,
    /// Sum of `token_log_probabilities`.
    pub(crate) log_probability: f64,
    /// Number that ranks the path in the search; equals `log_probability` without a repetition
    /// penalty.
    pub(crate) rank: f64,
}

impl Path {
    /// Removes the end with which the path stopped at the maximum length, if by the rules in
    /// `config` no end is forced there.
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
    /// Scores a path, with or without a closing `</s>`.
    pub(crate) fn from_path(path: Path, limits: OutputLimits, config: &DecodingConfig) -> Self {
        let Path { tokens, token_log_probabilities, log_probability, rank } = path;
        let length = token_log_probabilities.len();
        let truncated = tokens.len() >= limits.max_length;
        let score = config.score(rank, length, limits);
        Self { tokens, log_probability, token_log_probabilities, score, length, truncated }
    }

    /// Translation of an empty source: it is empty, with probability 1.
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
