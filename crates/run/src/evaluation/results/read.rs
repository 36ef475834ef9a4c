//! Scores of a language model on the text of a test set.

use serde::Serialize;

/// Scores of a language model on a text that is divided into blocks.
///
/// Each token but the first of a block is predicted once, from its predecessors in the block. The
/// perplexities per word, character and byte are computed from the same sum of log-likelihoods,
/// divided by the number of words, characters or bytes. With them, models with different tokens can
/// be compared. Words are divided by white space.
#[derive(Debug, Clone, Serialize)]
pub struct ReadTestSet {
    /// Name of the split.
    pub split: String,
    /// Number of tokens that the model predicted.
    pub tokens: u64,
    /// Number of `<unk>` tokens in the text.
    pub unknown: u64,
    /// Mean negative log-likelihood of a token, in nats.
    pub loss: f64,
    /// Negative log-likelihood of the text per character, in nats.
    pub loss_per_character: f64,
    /// Perplexity of a token, `exp(loss)`.
    pub perplexity: f64,
    /// Perplexity of a word.
    pub perplexity_per_word: f64,
    /// Perplexity of a character.
    pub perplexity_per_character: f64,
    /// Perplexity of a byte in UTF-8.
    pub perplexity_per_byte: f64,
    /// Share of tokens that had the highest probability at their place in the text.
    pub accuracy: f64,
}

impl ReadTestSet {
    /// Lines of a report for people.
    pub(super) fn lines(&self) -> Vec<String> {
        let unknown = match self.unknown {
            0 => String::new(),
            count => format!(", {count} of them <unk>"),
        };
        vec![
            format!("{} ({} tokens{unknown})", self.split, self.tokens),
            format!(
                "  loss         {:.4} nats a token, {:.4} a character; {:.2} % of tokens right",
                self.loss,
                self.loss_per_character,
                100.0 * self.accuracy
            ),
            format!(
                "  perplexity   {} a token, {} a word, {} a character, {} a byte",
                shown(self.perplexity),
                shown(self.perplexity_per_word),
                shown(self.perplexity_per_character),
                shown(self.perplexity_per_byte)
            ),
        ]
    }
}

/// Formats a perplexity. A perplexity per word overflows if the text has hardly any white space.
pub(super) fn shown(perplexity: f64) -> String {
    if perplexity.is_finite() { format!("{perplexity:.3}") } else { "above 1e308".to_owned() }
}
