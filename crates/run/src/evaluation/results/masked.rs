//! Scores of a masked language model, which predicts hidden tokens of a test set.

use serde::Serialize;
use taper_trainer::TeacherForced;

use super::read::shown;

/// Scores of a masked language model on the hidden tokens of a text. Every evaluation hides the
/// same tokens.
#[derive(Debug, Clone, Serialize)]
pub struct MaskedTestSet {
    /// Name of the split.
    pub split: String,
    /// Number of hidden tokens, which the model predicts.
    pub tokens: u64,
    /// Mean negative log-likelihood of a hidden token, in nats.
    pub loss: f64,
    /// Perplexity of a hidden token, `exp(loss)`.
    pub perplexity: f64,
    /// Share of hidden tokens for which the correct token has the highest probability.
    pub accuracy: f64,
}

impl MaskedTestSet {
    pub(crate) fn from_measured(split: &str, measured: &TeacherForced) -> Self {
        Self {
            split: split.to_owned(),
            tokens: measured.tokens,
            loss: measured.nll,
            perplexity: measured.perplexity,
            accuracy: measured.accuracy,
        }
    }

    /// Lines of a report for people.
    pub(super) fn lines(&self) -> Vec<String> {
        vec![
            format!("{} ({} hidden tokens)", self.split, self.tokens),
            format!(
                "  loss         {:.4} nats, perplexity {}; {:.2} % of tokens right",
                self.loss,
                shown(self.perplexity),
                100.0 * self.accuracy
            ),
        ]
    }
}
