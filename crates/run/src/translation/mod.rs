//! Translation of lines of text with a trained model.

mod alignment;
mod best_translations;
mod documents;
mod line_translator;
mod links;
pub(crate) mod order;
mod overlong;
mod pairs;
mod parts;
mod places;
mod punctuation;
mod reranking;
mod search;
mod settings;
mod terms;
mod token_spans;

use serde::Serialize;

pub use alignment::AlignedTokens;
pub(crate) use best_translations::BestTranslations;
pub use documents::{
    DocumentFile, DocumentTranslation, SentenceWindow, TranslatedDocument, TranslatedSentence,
    linked_sentences, sentence_settings, translate_document,
};
pub use line_translator::{LineTranslator, PackedModels, TranslatedLine};
pub use order::Order;
pub use overlong::{LineLimit, Overlong, OverlongRule};
pub use pairs::{Side, score_pairs};
pub use places::LineNumbers;
pub(crate) use search::as_text;
pub use search::{by_line, encode_sources, speaking};
pub use settings::{TranslationDetail, TranslationSettings, for_the_best};
pub use terms::Terms;
pub(crate) use token_spans::is_marker;

/// Translation of a line.
#[derive(Debug, Clone, Serialize)]
pub struct Translation {
    /// Text of the translation.
    pub text: String,
    /// Length-normalised log-probability. Lists of translations are sorted by it if `total` is
    /// `None`.
    pub score: f64,
    /// Score by reranking (choice among translations), by which lists are then sorted: the weighted
    /// sum of several criteria. `None` without reranking.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<f64>,
    /// Natural logarithm of the probability of the translation.
    pub log_probability: f64,
    /// Number of tokens of the translation, including the `</s>` of each part of the line.
    #[serde(skip)]
    pub length: usize,
    /// True if the translation, or a part of it, ends only because it reached the maximum length.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
    /// Ids of the tokens of the translation.
    #[serde(skip)]
    pub tokens: Vec<u32>,
    /// Natural logarithm of the probability of each token, given its predecessors, including the
    /// `</s>` of each part.
    #[serde(skip)]
    pub token_log_probabilities: Vec<f64>,
    /// Alignment with source tokens; `None` if it is not requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alignment: Option<AlignedTokens>,
}

/// Replaces line breaks by spaces. A model whose vocabulary has single bytes can generate line
/// breaks, but the output has one line for each sentence.
pub fn single_line(text: String) -> String {
    if text.contains(['\n', '\r']) { text.replace(['\n', '\r'], " ") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_translation_stays_on_its_line() {
        assert_eq!(single_line("a\nb\r\nc".to_owned()), "a b  c");
    }
}
