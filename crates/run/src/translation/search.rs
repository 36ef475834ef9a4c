//! Translation of texts: tokenisation, search, and conversion of the result to text.

use std::collections::BTreeMap;

use anyhow::{Error, Result};
use rayon::prelude::*;
use taper_data::{Tokenizer, TokenizerPair};
use taper_decoding::{
    Control, DecodingConfig, DecodingError, Hypothesis, LengthSettings, Sentence, SpecialIds,
    StepModel, Translator, WithSpecialIds,
};
use taper_model::{Inference, TranslationModel};

use super::parts::{TextPart, source_row};
use super::{Translation, single_line};
use crate::items::BadItem;
use crate::shortlist::LoadedShortlist;

// The crates of the data and of decoding do not depend on each other, but must have the same ids of
// special tokens.
const _: () =
    assert!(taper_data::END == taper_decoding::END && taper_data::START == taper_decoding::START);
const _: () = assert!(
    taper_data::PAD == taper_decoding::PAD && taper_data::UNKNOWN == taper_decoding::UNKNOWN
);

/// Prepares `model` for a search: returns it in the form for inference, together with the ids of
/// the special tokens of its target vocabulary. `tokenizer`: target tokenizer of the model.
pub fn speaking(model: &TranslationModel, tokenizer: &Tokenizer) -> WithSpecialIds<Inference> {
    let tokens = tokenizer.special_tokens();
    let special = match tokenizer.folder() {
        None => SpecialIds::ours([]),
        Some(_) => {
            SpecialIds::new(tokenizer.end(), &tokens.ends, tokens.never_written.iter().copied())
                .with_start(tokenizer.decoder_start())
                .with_unknown(tokens.unknown)
        }
    };
    WithSpecialIds::new(model.inference(), special)
}

/// Tokens that the encoder reads for each of `lines`, ending with `</s>`. A line with only spaces
/// counts as empty.
///
/// # Errors
/// If the tokenizer fails.
pub fn encode_sources<S: AsRef<str> + Sync>(
    tokenizers: &TokenizerPair,
    lines: &[S],
) -> Result<Vec<Vec<u32>>> {
    let source = tokenizers.source();
    let ids = source.encode_batch(lines)?;
    let rows = ids.iter().zip(lines).map(|(ids, line)| source_row(source, line.as_ref(), ids));
    Ok(rows.collect())
}

/// Texts to translate, with the shortlist of the search (the target tokens that translations may
/// contain); `None` if they may contain all tokens.
#[derive(Clone, Copy)]
pub(crate) struct SearchTexts<'a> {
    pub(crate) texts: &'a [TextPart],
    pub(crate) shortlist: Option<&'a LoadedShortlist>,
}

impl<'a> SearchTexts<'a> {
    /// Target tokens that the translations of each text may contain according to the shortlist;
    /// `None` for each text if there is no shortlist.
    fn candidates(self, special: &SpecialIds) -> Vec<Option<Vec<u32>>> {
        let of_text = |text: &TextPart| {
            self.shortlist.map(|shortlist| shortlist.candidates(&text.sentence(), special))
        };
        self.texts.par_iter().map(of_text).collect()
    }

    /// Input of the search, with the result of [`Self::candidates`].
    fn sentences(self, candidates: &'a [Option<Vec<u32>>]) -> Vec<Sentence<'a>> {
        let both = self.texts.iter().zip(candidates);
        both.map(|(text, list)| Sentence { candidates: list.as_deref(), ..text.sentence() })
            .collect()
    }

    /// Number of the line of a text. Several texts may be parts of one line.
    fn line(self, index: usize) -> usize {
        self.texts.get(index).map_or(index, |text| text.line)
    }
}

/// Translations of texts.
#[derive(Default)]
pub(crate) struct Found {
    /// Translations of each text, the best first. An empty text has one empty translation. A text
    /// that is cancelled, or whose search fails, has none.
    pub(crate) translations: Vec<Vec<Translation>>,
    /// For the index of each text whose search fails, the error, which is a [`BadItem`].
    pub(crate) faults: BTreeMap<usize, Error>,
}

/// Translates each of `texts`. `progress` is called with the number of sentences that are done so
/// far.
///
/// # Errors
/// If the tokenizer or the model fails.
pub(crate) fn translate<M: StepModel>(
    model: &M,
    tokenizers: &TokenizerPair,
    config: &DecodingConfig,
    texts: SearchTexts<'_>,
    control: &dyn Control,
    progress: impl FnMut(usize),
) -> Result<Found> {
    let candidates = texts.candidates(model.special());
    let translator = Translator::new(model, config.clone())?.controlled(control);
    let at_line = |error| by_line(error, "decoding", |index| texts.line(index));
    let results =
        translator.translate_each(&texts.sentences(&candidates), progress).map_err(at_line)?;
    let mut found = Found::default();
    for (index, hypotheses) in results.into_iter().enumerate() {
        let hypotheses = hypotheses.unwrap_or_else(|error| {
            found.faults.insert(index, BadItem::from_error(&at_line(error)));
            Vec::new()
        });
        let translations = hypotheses.into_iter().map(|one| as_text(one, tokenizers));
        found.translations.push(translations.collect::<Result<_>>()?);
    }
    Ok(found)
}

/// Converts a result of the search to a translation with its text.
///
/// # Errors
/// If the tokenizer fails.
pub(crate) fn as_text(hypothesis: Hypothesis, tokenizers: &TokenizerPair) -> Result<Translation> {
    Ok(Translation {
        text: single_line(tokenizers.target().decode(&hypothesis.tokens)?),
        score: hypothesis.score,
        total: None,
        log_probability: hypothesis.log_probability,
        length: hypothesis.length,
        truncated: hypothesis.truncated,
        tokens: hypothesis.tokens,
        token_log_probabilities: hypothesis.token_log_probabilities,
        alignment: None,
    })
}

/// For each of `texts`, a list of its best translations with each of the settings `lengths`, which
/// replace those in `config`. The translations of a cancelled text are empty.
///
/// # Errors
/// See [`translate`].
pub(crate) fn translate_under<M: StepModel>(
    model: &M,
    tokenizers: &TokenizerPair,
    config: &DecodingConfig,
    lengths: &[LengthSettings],
    texts: SearchTexts<'_>,
    control: &dyn Control,
    mut progress: impl FnMut(usize),
) -> Result<Vec<Vec<String>>> {
    let candidates = texts.candidates(model.special());
    let sentences = texts.sentences(&candidates);
    let hypotheses = Translator::new(model, config.clone())?
        .controlled(control)
        .translate_under(&sentences, lengths, |chunk| progress(chunk.sentences_done))
        .map_err(|error| by_line(error, "decoding", |index| texts.line(index)))?;
    let text = |tokens: Vec<u32>| Ok(single_line(tokenizers.target().decode(&tokens)?));
    hypotheses.into_iter().map(|under| under.into_iter().map(text).collect()).collect()
}

/// Adds the message that `action` failed to an error. If the error has the index of a sentence, the
/// index is replaced by the number of the sentence's line, counted from 1, which `line_of` returns.
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
