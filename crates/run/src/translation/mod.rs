//! From text to text: tokenizer, search, detokenizer.

mod line_translator;
mod loaded_run;
mod overlong;

use anyhow::{Result, bail};
use serde::Serialize;
use taper_data::{END, TokenizerPair, UNKNOWN};
use taper_decoding::{DecodingConfig, DecodingError, Sentence, StepModel, Translator};
use taper_model::Transformer;

pub use line_translator::{AlignedTokens, LineTranslator, Shown, Translated};
pub use loaded_run::{LoadSettings, LoadedRun, require_unedited};
pub use overlong::{Limit, Overlong, OverlongRule};

pub(crate) use loaded_run::build_model;
use overlong::join;

// Each of the two is complete without the other, and they must agree.
const _: () =
    assert!(taper_data::END == taper_decoding::END && taper_data::START == taper_decoding::START);
const _: () = assert!(
    taper_data::PAD == taper_decoding::PAD && taper_data::UNKNOWN == taper_decoding::UNKNOWN
);

/// One translation of one line.
#[derive(Debug, Clone, Serialize)]
pub struct Translation {
    /// The text.
    pub text: String,
    /// Its length-normalised log-probability, by which n-best lists are ordered.
    pub score: f64,
    /// Its log-probability.
    pub log_probability: f64,
    /// How many tokens that is of, the `</s>` of each part counted.
    #[serde(skip)]
    pub length: usize,
    /// Its tokens.
    #[serde(skip)]
    pub tokens: Vec<u32>,
    /// Which source tokens they were made from, where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alignment: Option<AlignedTokens>,
}

/// A text to translate.
#[derive(Debug, Clone, Copy)]
pub struct Text<'a> {
    /// The text.
    pub source: &'a str,
    /// What its translations must begin with; empty for anything.
    pub prefix: &'a str,
    /// The number of its line, from 1.
    pub line: usize,
    /// Which part of the line it is, from 0.
    pub part: u64,
}

impl Text<'_> {
    /// What tells its draws from those of other texts. They must not depend on how many parts the
    /// lines before it have.
    fn number(&self) -> u64 {
        self.line as u64 | self.part << 40
    }
}

/// Source ids as the model expects them: tokens and `</s>`. A line of nothing
/// but spaces counts as empty.
///
/// # Errors
/// When the tokenizer fails.
pub fn encode_sources<S: AsRef<str> + Sync>(
    tokenizers: &TokenizerPair,
    lines: &[S],
) -> Result<Vec<Vec<u32>>> {
    let mut ids = tokenizers.source().encode_batch(lines)?;
    for (sentence, line) in ids.iter_mut().zip(lines) {
        if line.as_ref().trim().is_empty() {
            sentence.clear();
        }
        sentence.push(END);
    }
    Ok(ids)
}

/// Translates `texts`; the answer has their order, best translation first.
/// An empty text gives one empty translation. `progress` is called with the
/// sentences done so far.
///
/// # Errors
/// For a prefix that the target vocabulary cannot spell; when the search or the tokenizer fails.
pub fn translate<M: StepModel>(
    model: &M,
    tokenizers: &TokenizerPair,
    config: &DecodingConfig,
    texts: &[Text<'_>],
    mut progress: impl FnMut(usize),
) -> Result<Vec<Vec<Translation>>> {
    let lines: Vec<&str> = texts.iter().map(|text| text.source).collect();
    let sources = encode_sources(tokenizers, &lines)?;
    // A blank at either end would be a token of its own, which translations do not have before a
    // word.
    let prefixes: Vec<&str> = texts.iter().map(|text| text.prefix.trim()).collect();
    let prefixes = tokenizers.target().encode_batch(&prefixes)?;
    if let Some((_, text)) =
        prefixes.iter().zip(texts).find(|(prefix, _)| prefix.contains(&UNKNOWN))
    {
        bail!(
            "line {}: its prefix has characters that the target vocabulary cannot spell; leave them out",
            text.line
        );
    }
    let sentences: Vec<Sentence<'_>> = sources
        .iter()
        .zip(&prefixes)
        .zip(texts)
        .map(|((source, prefix), text)| Sentence { source, prefix, number: text.number() })
        .collect();
    let translator = Translator::new(model, config.clone())?;
    // Lines may have several parts.
    let line_of = |index: usize| texts.get(index).map_or(index, |text| text.line);
    let found = translator
        .translate_sentences(&sentences, |chunk| progress(chunk.sentences_done))
        .map_err(|error| by_line(error, "decoding", line_of))?;
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
                        length: hypothesis.length,
                        tokens: hypothesis.tokens,
                        alignment: None,
                    })
                })
                .collect()
        })
        .collect()
}

/// The error of `action` with the number of a line, counted from 1, where the search has the index
/// of a sentence.
pub fn by_line(
    mut error: DecodingError,
    action: &str,
    line_of: impl Fn(usize) -> usize,
) -> anyhow::Error {
    let Some(sentence) = error.sentence_mut() else {
        return anyhow::Error::new(error).context(format!("{action} failed"));
    };
    let line = line_of(*sentence);
    *sentence = line;
    anyhow::Error::new(error).context(format!("{action} failed at line {line}"))
}

/// The same settings for the best translation alone: the first that a search returns, and the best
/// of all that are drawn.
pub fn for_the_best(config: &DecodingConfig) -> DecodingConfig {
    let n_best = if config.sampling.is_active() { config.n_best } else { 1 };
    DecodingConfig { n_best, ..config.clone() }
}

/// The best translation of each line, and how many lines were translated in parts because they
/// exceed `limit`.
///
/// # Errors
/// As [`translate`].
pub fn translate_best(
    model: &Transformer,
    tokenizers: &TokenizerPair,
    config: &DecodingConfig,
    limit: Limit,
    lines: &[String],
    progress: impl FnMut(usize),
) -> Result<(Vec<String>, usize)> {
    let (mut texts, mut parts_of, mut overlong) =
        (Vec::with_capacity(lines.len()), Vec::with_capacity(lines.len()), 0);
    // From 1, as `translate` counts: draws depend on it.
    for (source, line) in lines.iter().zip(1..) {
        let (parts, exceeds) = limit.apply(tokenizers.source(), source, line)?;
        overlong += usize::from(exceeds.is_some());
        parts_of.push(parts.len());
        texts.extend(parts.into_iter().zip(0..).map(|(source, part)| Text {
            source,
            prefix: "",
            line,
            part,
        }));
    }
    let mut found =
        translate(&model.inference(), tokenizers, &for_the_best(config), &texts, progress)?
            .into_iter()
            .map(
                |mut found| {
                    if found.is_empty() { String::new() } else { found.swap_remove(0).text }
                },
            );
    let whole = |parts| match found.by_ref().take(parts).collect::<Vec<_>>() {
        mut one if one.len() == 1 => one.swap_remove(0),
        several => join(&several.iter().map(String::as_str).collect::<Vec<_>>()),
    };
    Ok((parts_of.into_iter().map(whole).collect(), overlong))
}

/// Byte fallback lets a model spell a line break; output is one line a sentence.
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
