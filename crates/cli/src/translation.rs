//! From text to text: tokenizer, search, detokenizer.

use anyhow::{Context, Result};
use serde::Serialize;
use taper_data::{END, TokenizerPair};
use taper_decoding::{DecodingConfig, Translator};
use taper_model::Transformer;

/// One translation of one line.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Translation {
    /// The text.
    pub(crate) text: String,
    /// Its length-normalised log-probability, by which n-best lists are ordered.
    pub(crate) score: f64,
    /// Its log-probability.
    pub(crate) log_probability: f64,
}

/// Source ids as the model expects them: tokens and `</s>`. A line of nothing
/// but spaces counts as empty.
///
/// # Errors
/// When the tokenizer fails.
pub(crate) fn encode_sources(tokenizers: &TokenizerPair, lines: &[String]) -> Result<Vec<Vec<u32>>> {
    let mut ids = tokenizers.source().encode_batch(lines)?;
    for (sentence, line) in ids.iter_mut().zip(lines) {
        if line.trim().is_empty() {
            sentence.clear();
        }
        sentence.push(END);
    }
    Ok(ids)
}

/// Translates `lines`; the answer has their order, best translation first.
/// An empty line gives one empty translation. `progress` is called with the
/// sentences done so far.
///
/// # Errors
/// When the search or the tokenizer fails.
pub(crate) fn translate(
    model: &Transformer,
    tokenizers: &TokenizerPair,
    config: &DecodingConfig,
    lines: &[String],
    mut progress: impl FnMut(usize),
) -> Result<Vec<Vec<Translation>>> {
    let sources = encode_sources(tokenizers, lines)?;
    let translator = Translator::new(model, config.clone())?;
    let found = translator.translate_with(&sources, |chunk| progress(chunk.sentences_done)).context("decoding failed")?;
    found
        .into_iter()
        .map(|hypotheses| {
            hypotheses
                .into_iter()
                .map(|hypothesis| {
                    Ok(Translation {
                        text: single_line(tokenizers.target().decode(&hypothesis.tokens)?),
                        score: hypothesis.score,
                        log_probability: hypothesis.log_probability,
                    })
                })
                .collect()
        })
        .collect()
}

/// The best translation of each line.
///
/// # Errors
/// As [`translate`].
pub(crate) fn translate_best(
    model: &Transformer,
    tokenizers: &TokenizerPair,
    config: &DecodingConfig,
    lines: &[String],
    progress: impl FnMut(usize),
) -> Result<Vec<String>> {
    let config = DecodingConfig { n_best: 1, ..config.clone() };
    Ok(translate(model, tokenizers, &config, lines, progress)?
        .into_iter()
        .map(|mut found| if found.is_empty() { String::new() } else { found.swap_remove(0).text })
        .collect())
}

/// Byte fallback lets a model spell a line break; output is one line a sentence.
fn single_line(text: String) -> String {
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
