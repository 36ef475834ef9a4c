//! A finished translation and how it is scored.

use serde::Serialize;

use crate::{DecodingConfig, OutputLimits};

/// One finished translation with its scores.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Hypothesis {
    /// The output tokens, without `<s>` and `</s>`.
    pub tokens: Vec<u32>,
    /// Natural logarithm of the probability of the tokens and the closing `</s>`.
    pub log_probability: f64,
    /// The [score](DecodingConfig::score) of [`log_probability`](Self::log_probability), after the
    /// repetition penalty if there is one; what n-best lists are sorted by.
    pub score: f64,
    /// The number of scored tokens: the output tokens and the closing `</s>`. Zero only for the
    /// translation of an empty source, which no model scored.
    pub length: usize,
    /// Whether it has as many tokens as it may have: it ends because nothing else was possible, and
    /// mostly in the middle of a sentence or of a repetition.
    pub truncated: bool,
}

impl Hypothesis {
    /// Scores `tokens` (without `</s>`). `log_probability` is their total with `</s>`, and `rank`
    /// what the search made of it, the same where no repetition penalty is asked for.
    pub(crate) fn finished(
        tokens: Vec<u32>,
        log_probability: f64,
        rank: f64,
        limits: OutputLimits,
        config: &DecodingConfig,
    ) -> Self {
        let length = tokens.len() + 1;
        let truncated = tokens.len() >= limits.max_length;
        Self { tokens, log_probability, score: config.score(rank, length), length, truncated }
    }

    /// Scores `tokens` that no `</s>` follows, since whoever reads them has had enough.
    pub(crate) fn broken_off(
        tokens: Vec<u32>,
        log_probability: f64,
        rank: f64,
        config: &DecodingConfig,
    ) -> Self {
        let length = tokens.len();
        let score = config.score(rank, length);
        Self { tokens, log_probability, score, length, truncated: false }
    }

    /// The translation of an empty source: nothing, for certain.
    pub(crate) fn empty() -> Self {
        Self { tokens: Vec::new(), log_probability: 0.0, score: 0.0, length: 0, truncated: false }
    }
}

/// The length penalty `((5 + n) / 6)^α` of Wu et al. 2016, "Google's Neural Machine Translation
/// System", equation 14; a hypothesis' log-probability is divided by it.
///
/// `n` counts the closing `</s>`, as its log-probability is part of the total. Zero for `α` leaves
/// log-probabilities as they are; the penalty grows with `n` for any larger `α`.
pub fn length_penalty(length: usize, alpha: f64) -> f64 {
    ((5.0 + length as f64) / 6.0).powf(alpha)
}
