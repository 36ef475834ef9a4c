//! Scores of a validation, and the metric by which checkpoints are compared.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A validation score by which checkpoints are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Label-smoothed cross entropy per target token; lower is better.
    Loss,
    /// The exponential of the unsmoothed cross entropy; lower is better.
    Perplexity,
    /// Share of target tokens predicted correctly under teacher forcing; higher is better.
    Accuracy,
    /// BLEU of decoded text; higher is better.
    Bleu,
    /// chrF of decoded text; higher is better.
    Chrf,
}

/// Scores of one validation by name, in alphabetical order of the names.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Scores(BTreeMap<String, f64>);

impl Metric {
    /// Name of the metric's score in [`Scores`].
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Loss => "loss",
            Self::Perplexity => "perplexity",
            Self::Accuracy => "accuracy",
            Self::Bleu => "bleu",
            Self::Chrf => "chrf",
        }
    }

    /// True if a higher score is a better one.
    #[must_use]
    pub const fn higher_is_better(self) -> bool {
        matches!(self, Self::Accuracy | Self::Bleu | Self::Chrf)
    }

    /// True if `score` is better than `best` by more than `minimum_change`.
    #[must_use]
    pub fn improves(self, score: f64, best: f64, minimum_change: f64) -> bool {
        if self.higher_is_better() {
            score > best + minimum_change
        } else {
            score < best - minimum_change
        }
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl Scores {
    /// Sets the score called `name`.
    pub fn insert(&mut self, name: &str, score: f64) {
        self.0.insert(name.to_owned(), score);
    }

    /// Returns the score called `name`; `None` if there is none.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<f64> {
        self.0.get(name).copied()
    }

    /// Names and scores, in the order of the names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, f64)> {
        self.0.iter().map(|(name, &score)| (name.as_str(), score))
    }

    /// True if there are no scores.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
