//! Translation of texts: tokenisation, search, and conversion of the result to text.

use anyhow::Result;
use taper_data::{Tokenizer, TokenizerPair};
use taper_decoding::{
    Control, DecodingConfig, DecodingError, Hypothesis, LengthSettings, Sentence, SpecialIds,
    StepModel, Translator, WithSpecialIds,
};
use taper_model::{Inference, TranslationModel};

use super::parts::{TextPart, source_row};
use super::{Translation, single_line};

// The crates of the data and of decoding do not depend on each other, but must have the same ids of
// special tokens.
const _: () =
    assert!(taper_data::END == taper_decoding::END && taper_data::START == taper_decoding::START);
const _: () = assert!(
    taper_data::PAD == taper_decoding::PAD && taper_data::UNKNOWN == taper_decoding::UNKNOWN
);

/// Inference form of `model`, with the special tokens of its target vocabulary. `tokenizer`: its
/// target tokenizer.
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

/// Translates each of `texts`. The translations of a text are sorted, the best first. An empty text
/// has one empty translation, and a cancelled text has no translations. `progress` receives the
/// number of texts that are translated so far.
///
/// # Errors
/// If the search or the tokenizer fails.
pub(crate) fn translate<M: StepModel>(
    model: &M,
    tokenizers: &TokenizerPair,
    config: &DecodingConfig,
    texts: &[TextPart],
    control: &dyn Control,
    mut progress: impl FnMut(usize),
) -> Result<Vec<Vec<Translation>>> {
    let sentences: Vec<Sentence<'_>> = texts.iter().map(TextPart::sentence).collect();
    let translator = Translator::new(model, config.clone())?.controlled(control);
    // Several texts can be parts of one line.
    let line_of = |index: usize| texts.get(index).map_or(index, |text| text.line);
    let found = translator
        .translate_sentences(&sentences, |chunk| progress(chunk.sentences_done))
        .map_err(|error| by_line(error, "decoding", line_of))?;
    found
        .into_iter()
        .map(|hypotheses| {
            hypotheses.into_iter().map(|hypothesis| as_text(hypothesis, tokenizers)).collect()
        })
        .collect()
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
/// replace those in `config`.
///
/// # Errors
/// See [`translate`].
pub(crate) fn translate_under<M: StepModel>(
    model: &M,
    tokenizers: &TokenizerPair,
    config: &DecodingConfig,
    lengths: &[LengthSettings],
    texts: &[TextPart],
    mut progress: impl FnMut(usize),
) -> Result<Vec<Vec<String>>> {
    let sentences: Vec<Sentence<'_>> = texts.iter().map(TextPart::sentence).collect();
    let line_of = |index: usize| texts.get(index).map_or(index, |text| text.line);
    let hypotheses = Translator::new(model, config.clone())?
        .translate_under(&sentences, lengths, |chunk| progress(chunk.sentences_done))
        .map_err(|error| by_line(error, "decoding", line_of))?;
    let text = |tokens: Vec<u32>| Ok(single_line(tokenizers.target().decode(&tokens)?));
    hypotheses.into_iter().map(|under| under.into_iter().map(text).collect()).collect()
}

/// Adds to an error that `action` failed. If the error has the index of a sentence, this is
/// replaced by the number of its line, counted from 1, which `line_of` returns.
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
