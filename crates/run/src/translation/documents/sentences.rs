//! Sentences of documents, translated as lines and linked to their translations.

use anyhow::Result;
use taper_documents::Translated;

use crate::items::BadItem;
use crate::translation::links::links;
use crate::translation::{TranslatedLine, TranslationDetail, TranslationSettings};

/// Translation of a sentence of a document.
#[derive(Debug, Clone, Default)]
pub struct TranslatedSentence {
    /// Best translation, with links between words if it was aligned; `None` if the search for it
    /// was cancelled.
    pub translation: Option<Translated>,
    /// True if the translation ends only because it reached the maximum length.
    pub is_truncated: bool,
    /// Prescribed translations of terms (words of the source) that are missing in the translation.
    pub missing_terms: Vec<String>,
}

/// Copy of `settings` for translating sentences of documents. With these settings, only the best
/// translation is returned, and it is aligned with the sentence if `is_aligned`.
#[must_use]
pub fn sentence_settings(settings: &TranslationSettings, is_aligned: bool) -> TranslationSettings {
    let detail = TranslationDetail { all: false, alignments: is_aligned, weights: is_aligned };
    TranslationSettings { detail, ..settings.clone() }
}

/// Converts translations of lines to translations of sentences with links between their words.
/// `translated`: results for the lines `texts` with [`sentence_settings`]. `source_prefix`: text
/// that the tokenizer puts before each line. The result for a sentence that cannot be translated is
/// an error.
///
/// # Errors
/// If the search, the tokenizer or an alignment has failed.
pub fn linked_sentences(
    source_prefix: &str,
    texts: &[String],
    translated: impl IntoIterator<Item = Result<TranslatedLine>>,
) -> Result<Vec<Result<TranslatedSentence>>> {
    let mut sentences = Vec::with_capacity(texts.len());
    for (text, translated) in texts.iter().zip(translated) {
        sentences.push(match translated {
            Err(error) if error.is::<BadItem>() => Err(error),
            translated => Ok(sentence(source_prefix, text, translated?)),
        });
    }
    Ok(sentences)
}

fn sentence(source_prefix: &str, text: &str, translated: TranslatedLine) -> TranslatedSentence {
    let TranslatedLine { translations, missing_terms, .. } = translated;
    let best = translations.into_iter().next();
    let is_truncated = best.as_ref().is_some_and(|best| best.truncated);
    let translation = best.map(|best| {
        let aligned = best.alignment.unwrap_or_default();
        let links = links(source_prefix, text, &best.text, &aligned);
        Translated { text: best.text, links }
    });
    TranslatedSentence { translation, is_truncated, missing_terms }
}
