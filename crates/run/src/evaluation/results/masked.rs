//! Hidden tokens of a test set, predicted by a masked language model.

use serde::Serialize;
use taper_trainer::TeacherForced;

use super::read::shown;

/// Text in which a masked language model has predicted hidden tokens. Every evaluation hides the
/// same tokens.
#[derive(Debug, Clone, Serialize)]
pub struct MaskedTestSet {
    /// The split's name.
    pub split: String,
    /// Number of tokens that were predicted.
    pub tokens: u64,
    /// Mean negative log-likelihood of a token, in nats.
    pub loss: f64,
    /// Perplexity, `exp(loss)`.
    pub perplexity: f64,
    /// Share of hidden tokens to which the model gave the highest probability.
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

    /// Lines of a report.
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
