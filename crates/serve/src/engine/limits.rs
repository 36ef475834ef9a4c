//! Limits on the tokens of a request.

use taper_data::{EncodedText, Tokenizer};

use crate::error::{Refusal, refusal};

/// Tokenises texts; refuses them if they have more than `most` tokens together.
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

/// Tokenises a text; refuses it if it has more than `most` tokens.
pub(super) fn encoded_text(
    tokenizer: &Tokenizer,
    text: &str,
    most: usize,
) -> Result<EncodedText, Refusal> {
    Ok(encoded(tokenizer, &[text], most)?.pop().unwrap_or_default())
}

/// Refuses more than `most` tokens.
pub(super) fn within_limit(tokens: usize, most: usize) -> Result<(), Refusal> {
    if tokens > most {
        return Err(Refusal::Large(format!("{tokens} tokens: a request must have at most {most}")));
    }
    Ok(())
}
