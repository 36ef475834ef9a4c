//! From text to text: tokenizer, search, detokenizer.

use anyhow::{Result, bail};
use taper_data::{Tokenizer, TokenizerPair};
use taper_decoding::{
    Control, DecodingConfig, DecodingError, Hypothesis, Sentence, SpecialIds, StepModel,
    Translator, WithSpecialIds,
};
use taper_model::{Inference, TranslationModel};

use super::{Translation, single_line};

// Each of the two is complete without the other, and they must agree.
const _: () =
    assert!(taper_data::END == taper_decoding::END && taper_data::START == taper_decoding::START);
const _: () = assert!(
    taper_data::PAD == taper_decoding::PAD && taper_data::UNKNOWN == taper_decoding::UNKNOWN
);

/// Text to translate: a line, or a part of one that is too long.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TextPart<'a> {
    /// The text.
    pub(crate) source: &'a str,
    /// Prefix of all its translations; may be empty.
    pub(crate) prefix: &'a str,
    /// Number of its line, from 1.
    pub(crate) line: usize,
    /// Index of the part in its line, from 0.
    pub(crate) part: u64,
}

impl TextPart<'_> {
    /// Number that distinguishes its random draws from those of other texts. They must not depend
    /// on the number of parts of earlier lines.
    fn number(&self) -> u64 {
        self.line as u64 | self.part << 40
    }
}

/// Model that decodes with the special tokens of the vocabulary that it writes.
pub fn speaking(model: &TranslationModel, tokenizer: &Tokenizer) -> WithSpecialIds<Inference> {
    let tokens = tokenizer.special_tokens();
    let special = match tokenizer.folder() {
        None => SpecialIds::ours([]),
        Some(_) => {
            SpecialIds::of(tokenizer.end(), &tokens.ends, tokens.never_written.iter().copied())
                .with_start(tokenizer.decoder_start())
                .with_unknown(tokens.unknown)
        }
    };
    WithSpecialIds::new(model.inference(), special)
}

/// Source ids for the model: tokens and `</s>`. A line of only spaces counts as empty.
///
/// # Errors
/// When the tokenizer fails.
pub fn encode_sources<S: AsRef<str> + Sync>(
    tokenizers: &TokenizerPair,
    lines: &[S],
) -> Result<Vec<Vec<u32>>> {
    let source = tokenizers.source();
    let ids = source.encode_batch(lines)?;
    let row = |(ids, line): (Vec<u32>, &S)| match line.as_ref().trim().is_empty() {
        true => vec![source.end()],
        false => source.source_row(ids),
    };
    Ok(ids.into_iter().zip(lines).map(row).collect())
}

/// Ids of texts to translate, and those with which their translations begin.
struct Rows {
    sources: Vec<Vec<u32>>,
    prefixes: Vec<Vec<u32>>,
}

impl Rows {
    fn of(tokenizers: &TokenizerPair, texts: &[TextPart<'_>]) -> Result<Self> {
        let lines: Vec<&str> = texts.iter().map(|text| text.source).collect();
        let sources = encode_sources(tokenizers, &lines)?;
        // A blank at either end would be a token of its own, which translations do not have before
        // a word.
        let prefixes: Vec<&str> = texts.iter().map(|text| text.prefix.trim()).collect();
        let target = tokenizers.target();
        let mut prefixes = target.encode_batch(&prefixes)?;
        for (ids, line) in prefixes.iter_mut().zip(lines) {
            // The translation of a blank line is empty.
            if !ids.is_empty() || !line.trim().is_empty() {
                ids.splice(0..0, target.special_tokens().before.iter().copied());
            }
        }
        Ok(Self { sources, prefixes })
    }

    fn sentences(&self, texts: &[TextPart<'_>]) -> Vec<Sentence<'_>> {
        let rows = self.sources.iter().zip(&self.prefixes).zip(texts);
        rows.map(|((source, prefix), text)| Sentence { source, prefix, number: text.number() })
            .collect()
    }
}

/// Translates `texts` in order, with the best translation of each first. An empty text has one
/// empty translation, and a cancelled one has none. `progress` is called with the number of
/// sentences done so far.
///
/// # Errors
/// When the search or the tokenizer fails, or a prefix is not [possible](check_prefix).
pub(crate) fn translate<M: StepModel>(
    model: &M,
    tokenizers: &TokenizerPair,
    config: &DecodingConfig,
    texts: &[TextPart<'_>],
    control: &dyn Control,
    mut progress: impl FnMut(usize),
) -> Result<Vec<Vec<Translation>>> {
    let rows = Rows::of(tokenizers, texts)?;
    let translator = Translator::new(model, config.clone())?.controlled(control);
    // Lines may have several parts.
    let line_of = |index: usize| texts.get(index).map_or(index, |text| text.line);
    let found = translator
        .translate_sentences(&rows.sentences(texts), |chunk| progress(chunk.sentences_done))
        .map_err(|error| by_line(error, "decoding", line_of))?;
    found
        .into_iter()
        .map(|hypotheses| {
            hypotheses.into_iter().map(|hypothesis| as_text(hypothesis, tokenizers)).collect()
        })
        .collect()
}

/// Refuses a prefix of a line that no translation can have, for a model whose outputs have at most
/// `longest` tokens.
///
/// # Errors
/// With the number of the line.
pub(super) fn check_prefix(
    tokenizer: &Tokenizer,
    prefix: &str,
    line: usize,
    longest: Option<usize>,
) -> Result<()> {
    let ids = tokenizer.encode(prefix.trim())?;
    if ids.iter().any(|&id| tokenizer.is_unknown(id)) {
        bail!(
            "line {line}: its prefix has characters that the target vocabulary cannot spell; leave \
             them out"
        );
    }
    if ids.iter().any(|&id| tokenizer.is_special(id)) {
        bail!("line {line}: its prefix has special tokens, which a translation gets by itself");
    }
    match longest {
        Some(longest) if ids.len() > longest => {
            let error = DecodingError::LongPrefix { sentence: line, tokens: ids.len(), longest };
            Err(anyhow::Error::new(error).context(format!("line {line}")))
        }
        _ => Ok(()),
    }
}

/// Converts a result of the search to text.
///
/// # Errors
/// When the tokenizer fails.
pub(crate) fn as_text(hypothesis: Hypothesis, tokenizers: &TokenizerPair) -> Result<Translation> {
    Ok(Translation {
        text: single_line(tokenizers.target().decode(&hypothesis.tokens)?),
        score: hypothesis.score,
        log_probability: hypothesis.log_probability,
        length: hypothesis.length,
        truncated: hypothesis.truncated,
        tokens: hypothesis.tokens,
        alignment: None,
    })
}

/// Best translation of each of `texts` under each of `lengths`, a length penalty and a length
/// reward in place of those of `config`.
///
/// # Errors
/// See [`translate`].
pub(crate) fn translate_under<M: StepModel>(
    model: &M,
    tokenizers: &TokenizerPair,
    config: &DecodingConfig,
    lengths: &[(f64, f64)],
    texts: &[TextPart<'_>],
    mut progress: impl FnMut(usize),
) -> Result<Vec<Vec<String>>> {
    let rows = Rows::of(tokenizers, texts)?;
    let line_of = |index: usize| texts.get(index).map_or(index, |text| text.line);
    let found = Translator::new(model, config.clone())?
        .translate_under(&rows.sentences(texts), lengths, |chunk| progress(chunk.sentences_done))
        .map_err(|error| by_line(error, "decoding", line_of))?;
    let text = |tokens: Vec<u32>| Ok(single_line(tokenizers.target().decode(&tokens)?));
    found.into_iter().map(|under| under.into_iter().map(text).collect()).collect()
}

/// Error of `action` with the number of a line, counted from 1, in place of the search's index of a
/// sentence.
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
