//! Limits on the tokens of a request.

use taper_data::{EncodedText, Tokenizer};

use crate::error::{Refusal, refusal};

/// Tokens of texts, which have at most `most` together.
pub(super) fn encoded(
    tokenizer: &Tokenizer,
    texts: &[impl AsRef<str>],
    most: usize,
) -> Result<Vec<EncodedText>, Refusal> {
    let mut tokens = 0;
    let encode = |text: &_| {
        let encoded = tokenizer.encode_long_text(AsRef::as_ref(text));
        let encoded = encoded.map_err(|error| refusal(&error.into()))?;
        tokens += encoded.len();
        Ok(encoded)
    };
    let encoded = texts.iter().map(encode).collect::<Result<_, Refusal>>()?;
    within_limit(tokens, most)?;
    Ok(encoded)
}

/// Refuses texts with more than `most` tokens together. They are counted only if they may have
/// more: a token spells at least one byte, normalisation makes at most eleven of one (NFKC, of
/// U+FDFA), and the beginning of a text may be marked.
pub(super) fn within(tokenizer: &Tokenizer, texts: &[String], most: usize) -> Result<(), Refusal> {
    let bytes: usize = texts.iter().map(|text| text.len().saturating_mul(11) + 1).sum();
    if bytes <= most {
        return Ok(());
    }
    let count = |text: &String| {
        tokenizer.count_tokens(text).map_err(|error| refusal(&anyhow::Error::new(error)))
    };
    let tokens = texts.iter().try_fold(0, |sum, text| Ok(sum + count(text)?))?;
    within_limit(tokens, most)
}

/// Refuses more than `most` tokens.
pub(super) fn within_limit(tokens: usize, most: usize) -> Result<(), Refusal> {
    if tokens > most {
        return Err(Refusal::Large(format!("{tokens} tokens: at most {most} are taken at once")));
    }
    Ok(())
}
