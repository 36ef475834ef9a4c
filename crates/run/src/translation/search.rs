//! From text to text: tokenizer, search, detokenizer.

use anyhow::Result;
use taper_data::{Tokenizer, TokenizerPair};
use taper_decoding::{
    Control, DecodingConfig, DecodingError, Hypothesis, LengthSettings, Sentence, SpecialIds,
    StepModel, Translator, WithSpecialIds,
};
use taper_model::{Inference, TranslationModel};

use super::parts::{TextPart, source_row};
use super::{Translation, single_line};

// The crates of the data and of decoding do not know each other, but must have the same ids.
const _: () =
    assert!(taper_data::END == taper_decoding::END && taper_data::START == taper_decoding::START);
const _: () = assert!(
    taper_data::PAD == taper_decoding::PAD && taper_data::UNKNOWN == taper_decoding::UNKNOWN
);

/// Model that decodes, with the special tokens of its target vocabulary.
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

/// Rows of tokens that the encoder reads for `lines`; they end with `</s>`. A line of only spaces
/// counts as empty.
///
/// # Errors
/// When the tokenizer fails.
pub fn encode_sources<S: AsRef<str> + Sync>(
    tokenizers: &TokenizerPair,
    lines: &[S],
) -> Result<Vec<Vec<u32>>> {
    let source = tokenizers.source();
    let ids = source.encode_batch(lines)?;
    let rows = ids.iter().zip(lines).map(|(ids, line)| source_row(source, line.as_ref(), ids));
    Ok(rows.collect())
}

/// Translates each of `texts`; its translations come best first. An empty text has one empty
/// translation, and a cancelled text has none. `progress` is called with the number of sentences
/// that are done so far.
///
/// # Errors
/// When the search or the tokenizer fails.
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
    // Several texts may be parts of one line.
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

/// Converts a result of the search to text.
///
/// # Errors
/// When the tokenizer fails.
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

/// Best translation of each of `texts` with each of the settings `lengths`, which replace those in
/// `config`: a list for each text.
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

/// Converts an error of `action`: if it has the index of a sentence, the number that `line_of`
/// returns for it, counted from 1, takes its place.
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
