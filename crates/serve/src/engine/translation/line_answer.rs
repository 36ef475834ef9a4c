//! Answers to clients: the translations of a line, with alignments.

use anyhow::Result;
use serde::Serialize;
use taper_data::{EncodedText, TokenizerPair};
use taper_run::generation::pieces_of;
use taper_run::translation::{AlignedTokens, TranslatedLine, Translation};

/// Translations of one line.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct LineAnswer {
    /// Source line.
    pub(crate) source: String,
    /// Translations, best first.
    pub(crate) translations: Vec<OneTranslation>,
    /// Number of parts into which the line was divided, because it has more tokens than any line in
    /// training; `None` if it was not divided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) parts: Option<usize>,
    /// Required translations of terms that are missing in the best translation.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) missing_terms: Vec<String>,
}

/// A single translation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct OneTranslation {
    pub(crate) text: String,
    pub(crate) score: f64,
    pub(crate) log_probability: f64,
    pub(crate) truncated: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) alignment: Option<AlignedText>,
}

/// Alignment of the tokens of a source and of its translation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct AlignedText {
    /// Text of each source token.
    pub(crate) source: Vec<String>,
    /// Text of each token of the translation.
    pub(crate) target: Vec<String>,
    /// Weights of the alignment: one row for each token of the translation, with a weight for each
    /// source token. The sum of a row may be less than 1, because the weight of the source's
    /// end-of-sentence token is left out.
    pub(crate) weights: Vec<Vec<f64>>,
    /// Probability of each token of the translation, given its predecessors.
    pub(crate) probabilities: Vec<f64>,
}

/// Makes the answer for a line from its translations.
pub(super) fn line_answer(
    tokenizers: &TokenizerPair,
    line: &EncodedText,
    translated: TranslatedLine,
) -> Result<LineAnswer> {
    let parts = translated.overlong.map(|overlong| overlong.parts);
    let missing_terms = translated.missing_terms;
    let translations = translated
        .translations
        .into_iter()
        .map(|one| {
            let alignment = one.alignment.as_ref();
            let alignment = alignment
                .map(|alignment| aligned(tokenizers, line, &one, alignment))
                .transpose()?;
            Ok(OneTranslation {
                text: one.text,
                score: one.score,
                log_probability: one.log_probability,
                truncated: one.truncated,
                alignment,
            })
        })
        .collect::<Result<_>>()?;
    Ok(LineAnswer { source: line.text().to_owned(), translations, parts, missing_terms })
}

fn aligned(
    tokenizers: &TokenizerPair,
    line: &EncodedText,
    translation: &Translation,
    alignment: &AlignedTokens,
) -> Result<AlignedText> {
    let ids = if line.is_blank() { &[] } else { line.ids() };
    let mut source = pieces_of(tokenizers.source(), ids)?;
    let words = alignment.source_tokens.len().saturating_sub(1);
    // The alignment of a long line leaves out the blanks around the line, so it may have fewer
    // tokens than `ids`. Then the token texts of the alignment are used.
    if source.len() != words {
        source = alignment.source_tokens[..words].to_vec();
    }
    let target = pieces_of(tokenizers.target(), &translation.tokens)?;
    let weights = alignment
        .weights
        .iter()
        .map(|row| row.iter().take(words).map(|&weight| rounded(weight)).collect())
        .collect();
    let probabilities = translation.token_log_probabilities.iter().take(target.len());
    let probabilities = probabilities.map(|one| rounded(one.exp() as f32)).collect();
    Ok(AlignedText { source, target, weights, probabilities })
}

/// Rounds a weight to three decimals.
pub(crate) fn rounded(weight: f32) -> f64 {
    (f64::from(weight) * 1e3).round() / 1e3
}
