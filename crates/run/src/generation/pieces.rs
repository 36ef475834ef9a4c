//! Conversion of tokens to text, part by part, during generation.

use taper_data::{Result, Tokenizer};

/// Character that the tokenizer writes for bytes that do not yet complete a character.
pub(super) const INCOMPLETE: char = '\u{fffd}';

/// Converter of a growing list of tokens to pieces of text. A token can be only a part of a
/// character, and its text can depend on the token before it.
#[derive(Debug, Clone)]
pub(super) struct Pieces {
    /// Tokens that determine the next piece of text: the tokens of the last returned piece, and all
    /// tokens after them.
    tokens: Vec<u32>,
    /// Number of tokens at the beginning of `tokens` whose text has been returned.
    written: usize,
}

impl Pieces {
    /// Starts the text that follows a prompt.
    pub(super) fn after(prompt: &[u32]) -> Self {
        let tokens = prompt[prompt.len().saturating_sub(1)..].to_vec();
        Self { written: tokens.len(), tokens }
    }

    /// Adds a token, and returns the text that it completes, which is empty if the token completes
    /// no character. If `is_last`, returns all text that is left, even an incomplete character.
    pub(super) fn push(
        &mut self,
        token: u32,
        is_last: bool,
        tokenizer: &Tokenizer,
    ) -> Result<String> {
        self.tokens.push(token);
        let text =
            continuation(&self.tokens[..self.written], &self.tokens[self.written..], tokenizer)?;
        // At the end, an incomplete character is returned, too.
        let is_end = is_last || tokenizer.is_special(token);
        if text.is_empty() || (text.ends_with(INCOMPLETE) && !is_end) {
            return Ok(String::new());
        }
        self.tokens.drain(..self.written);
        self.written = self.tokens.len();
        Ok(text)
    }
}

/// Text of each token of `ids`. The texts joined in order are the whole text. A character that
/// several tokens spell together is in the text of the last of these tokens.
///
/// # Errors
/// If the tokenizer fails.
pub fn pieces_of(tokenizer: &Tokenizer, ids: &[u32]) -> Result<Vec<String>> {
    let mut pieces = Pieces::after(&[]);
    let last = ids.len().saturating_sub(1);
    let piece = |(index, &id)| pieces.push(id, index == last, tokenizer);
    ids.iter().enumerate().map(piece).collect()
}

/// Text that `tokens` add after the tokens `before`.
pub(super) fn continuation(
    before: &[u32],
    tokens: &[u32],
    tokenizer: &Tokenizer,
) -> Result<String> {
    let (beginning, all) =
        (tokenizer.decode(before)?, tokenizer.decode(&[before, tokens].concat())?);
    Ok(match all.strip_prefix(&beginning) {
        Some(rest) => rest.to_owned(),
        // The prompt ends within a character, so its text is not a prefix.
        None => tokenizer.decode(tokens)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use taper_data::{END, TokenizerConfig, TokenizerKind};

    #[test]
    fn pieces_are_the_text_and_never_half_a_character() {
        let text = "the sea, the seä and 日本 of the sea ";
        for kind in [TokenizerKind::Bytes, TokenizerKind::Char] {
            let config =
                TokenizerConfig { kind, vocabulary_size: 270, ..TokenizerConfig::default() };
            let texts = (0..9).map(|_| Ok(text.to_owned()));
            let tokenizer = Tokenizer::train(&config, false, false, texts).expect("trained");
            let ids = tokenizer.encode(text).expect("encoded");
            let (prompt, rest) = ids.split_at(3);
            let mut pieces = Pieces::after(prompt);
            let mut written = tokenizer.decode(prompt).expect("text");
            for &id in rest.iter().chain(&[END]) {
                let piece = pieces.push(id, false, &tokenizer).expect("text");
                assert!(!piece.contains(INCOMPLETE), "{piece:?}");
                written += &piece;
            }
            assert_eq!(written, text, "{kind:?}");
        }
    }

    #[test]
    fn pieces_joined_are_the_whole_text() {
        let config = TokenizerConfig {
            kind: TokenizerKind::Bytes,
            vocabulary_size: 270,
            ..TokenizerConfig::default()
        };
        let texts = (0..9).map(|_| Ok("the sea 日本".to_owned()));
        let tokenizer = Tokenizer::train(&config, false, false, texts).expect("trained");
        let ids = tokenizer.encode("sea 日本").expect("encoded");
        for length in 0..=ids.len() {
            let ids = &ids[..length];
            let pieces = pieces_of(&tokenizer, ids).expect("text");
            // The text can end within a character.
            assert_eq!(pieces.concat(), tokenizer.decode(ids).expect("text"), "{length}");
            assert_eq!(pieces.len(), length);
        }
    }
}
