//! Encoded texts: texts with their tokens and the place of each token, so that a text is tokenised
//! only once.

use std::ops::Range;
use std::sync::atomic::Ordering;

use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::metaspace::PrependScheme;

use crate::text::links::words_of_tokens;
use crate::text::panics::of_text;
use crate::{Result, Tokenizer};

/// Largest number of bytes of a long text that are tokenised at once. A tokenizer needs hundreds of
/// bytes of memory for each byte of text.
const PIECE: usize = 1 << 16;

/// Text with the ids of its tokens, and the byte range that each token covers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EncodedText {
    text: String,
    ids: Vec<u32>,
    bytes: Vec<Range<usize>>,
}

impl EncodedText {
    /// The text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Ids of the tokens of the text, equal to those of [`Tokenizer::encode`].
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// Byte range of the text that each token covers. A range contains whole characters, even if
    /// the token is only a part of a character. It includes following characters that the
    /// normalizer omitted or joined to the token, such as accents.
    pub fn bytes(&self) -> &[Range<usize>] {
        &self.bytes
    }

    /// Index of the word to which each token belongs. Words are separated by spaces and tabs, as in
    /// word aligners, and counted from 0. A token belongs to the word in which it begins, and a
    /// blank belongs to the next word. White space at the end belongs to [no word](crate::NO_WORD).
    pub fn words(&self) -> Vec<u32> {
        words_of_tokens(&self.text, &self.bytes)
    }

    /// Number of tokens of the text.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// True if the text has no tokens.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// True if the text consists only of white space.
    pub fn is_blank(&self) -> bool {
        self.text.trim().is_empty()
    }

    /// Indices of the tokens of the byte range `part`. `None` if this part of the text might have
    /// other tokens when it is encoded alone.
    ///
    /// The tokens are known to be the same if `part` begins at the beginning of the text, and no
    /// token crosses the end of `part`. If `stand_alone` is true, `part` may also begin after a
    /// blank, because a word after a blank then has the same tokens as at the beginning of a text.
    fn tokens_of(&self, part: &Range<usize>, stand_alone: bool) -> Option<Range<usize>> {
        if part.is_empty() {
            return None;
        }
        let first = match part.start {
            0 => 0,
            // The token that begins a word covers the blank before the word too.
            start if stand_alone && self.text[..start].ends_with(' ') => {
                self.bytes.partition_point(|token| token.start < start - 1)
            }
            _ => return None,
        };
        let behind = match part.end == self.text.len() {
            true => self.ids.len(),
            false => self.bytes.partition_point(|token| token.end <= part.end),
        };
        let before = first.checked_sub(1).map(|last| &self.bytes[last]);
        let is_whole = before.is_none_or(|token| token.end < part.start)
            && self.bytes.get(behind).is_none_or(|token| token.start >= part.end);
        (is_whole && first < behind).then_some(first..behind)
    }

    /// Appends the text and the tokens of `next`.
    fn push(&mut self, next: Self) {
        let before = self.text.len();
        self.text.push_str(&next.text);
        self.ids.extend(next.ids);
        self.bytes.extend(next.bytes.into_iter().map(|one| one.start + before..one.end + before));
    }
}

impl Tokenizer {
    /// Tokenises a text, and records the place of each token.
    ///
    /// # Errors
    ///
    /// See [`Tokenizer::encode`].
    pub fn encode_text(&self, text: &str) -> Result<EncodedText> {
        let reader = self.reader_of(text)?;
        self.encodings.fetch_add(1, Ordering::Relaxed);
        let normal = self.forms.as_ref().map(|forms| forms.normalize(text));
        let read = normal.as_ref().map_or(text, |normal| normal.text());
        let encoding = of_text("encode", text, || reader.encode(read, false))?;
        let whole = |&(start, end): &(usize, usize)| {
            let Range { start, end } = match &normal {
                Some(normal) => normal.original(start..end),
                None => start..end,
            };
            let start = text.floor_char_boundary(start);
            start..text.ceil_char_boundary(end).max(start)
        };
        let mut bytes: Vec<Range<usize>> = encoding.get_offsets().iter().map(whole).collect();
        for at in 0..bytes.len() {
            let next = bytes.get(at + 1).map_or(text.len(), |next| next.start);
            let gap = text.get(bytes[at].end..next).unwrap_or_default();
            bytes[at].end += gap.find(char::is_whitespace).unwrap_or(gap.len());
        }
        Ok(EncodedText { text: text.to_owned(), ids: self.plain(encoding.get_ids())?, bytes })
    }

    /// Tokenises a text of any length in pieces of at most 64 KiB, and records the place of each
    /// token.
    ///
    /// # Errors
    ///
    /// See [`Tokenizer::encode`].
    pub fn encode_long_text(&self, text: &str) -> Result<EncodedText> {
        if text.len() <= PIECE {
            return self.encode_text(text);
        }
        let mut whole = EncodedText::default();
        for piece in pieces_of_text(text) {
            whole.push(self.encode_text(piece)?);
        }
        Ok(whole)
    }

    /// Encodes a part of an encoded text. The result has the tokens that the part has when it is
    /// encoded alone. They are copied from the whole text if they are known to be the same;
    /// otherwise the part is tokenised again.
    ///
    /// A part at the beginning of a text has the same tokens as in the whole text if no token
    /// crosses the end of the part, because words are tokenised from left to right. A part after a
    /// blank has the same tokens, too, if the tokenizer marks the beginning of every word.
    ///
    /// # Errors
    ///
    /// See [`Tokenizer::encode`].
    ///
    /// # Panics
    ///
    /// If the part does not consist of whole characters.
    pub fn encode_part(&self, whole: &EncodedText, part: Range<usize>) -> Result<EncodedText> {
        let text = &whole.text[part.clone()];
        let Some(tokens) = whole.tokens_of(&part, self.words_stand_alone()) else {
            return self.encode_long_text(text);
        };
        let moved = |token: &Range<usize>| {
            token.start.saturating_sub(part.start)..token.end.saturating_sub(part.start)
        };
        Ok(EncodedText {
            text: text.to_owned(),
            ids: whole.ids[tokens.clone()].to_vec(),
            bytes: whole.bytes[tokens].iter().map(moved).collect(),
        })
    }

    /// Number of texts that were encoded by this tokenizer and by tokenizers that were derived from
    /// it.
    pub fn encodings(&self) -> u64 {
        self.encodings.load(Ordering::Relaxed)
    }

    /// True if a word after a blank has the same tokens as at the beginning of a text. This holds
    /// if the word gets a mark at both places, and no token crosses the blank.
    fn words_stand_alone(&self) -> bool {
        let first = match self.inner.get_pre_tokenizer() {
            Some(PreTokenizerWrapper::Sequence(steps)) => steps.as_ref().first(),
            alone => alone,
        };
        match first {
            Some(PreTokenizerWrapper::Metaspace(marks)) => {
                marks.split && marks.prepend_scheme != PrependScheme::Never
            }
            _ => false,
        }
    }
}

/// Divides a text into pieces of at most [`PIECE`] bytes. Each cut is before a space if possible,
/// because no token crosses the boundary before a space. In a long text without spaces, the tokens
/// at a cut may differ from the tokens of the whole text.
fn pieces_of_text(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let most = rest.floor_char_boundary(PIECE);
        let at = if most == rest.len() {
            most
        } else {
            rest[..most].rfind(' ').filter(|&at| at > 0).unwrap_or(most)
        };
        let (piece, after) = rest.split_at(at);
        rest = after;
        (!piece.is_empty()).then_some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{TokenizerConfig, TokenizerKind};

    const TEXT: &str = "one  two three. 一二三。四五, six «sẻven» e\u{301}t 12\u{3000}x1  end ";

    fn tokenizers() -> Vec<Tokenizer> {
        let kinds =
            [TokenizerKind::Bpe, TokenizerKind::Unigram, TokenizerKind::Bytes, TokenizerKind::Char];
        let trained = |(kind, changed)| {
            let config =
                TokenizerConfig { kind, vocabulary_size: 330, ..TokenizerConfig::default() };
            let texts = ["one two three. four five, six seven", "三二一。四五六, eight"];
            let texts = (0..20).map(|number| Ok(texts[number % 2].to_owned()));
            Tokenizer::train(&config, changed, changed, texts).expect("trains")
        };
        kinds.into_iter().flat_map(|kind| [(kind, false), (kind, true)]).map(trained).collect()
    }

    #[test]
    fn parts_have_the_tokens_that_they_have_by_themselves() {
        for tokenizer in tokenizers() {
            let whole = tokenizer.encode_text(TEXT).expect("encoded");
            assert_eq!(whole.ids(), tokenizer.encode(TEXT).expect("encoded"));
            let ends: Vec<usize> =
                (0..=TEXT.len()).filter(|&at| TEXT.is_char_boundary(at)).collect();
            let mut taken = 0;
            for &start in &ends {
                // A part begins with a word.
                if TEXT[start..].starts_with(char::is_whitespace) {
                    continue;
                }
                for &end in ends.iter().filter(|&&end| end >= start) {
                    let before = tokenizer.encodings();
                    let part = tokenizer.encode_part(&whole, start..end).expect("encoded");
                    taken += usize::from(tokenizer.encodings() == before);
                    let alone = tokenizer.encode_text(&TEXT[start..end]).expect("encoded");
                    assert_eq!(part.text(), alone.text());
                    assert_eq!(part.ids(), alone.ids(), "{:?}", part.text());
                }
            }
            assert!(taken > 20, "{taken}");
            assert!(!tokenizer.words_stand_alone() || taken > 150, "{taken}");
        }
    }

    #[test]
    fn long_texts_are_read_in_pieces() {
        let tokenizer = &tokenizers()[0];
        let words = "one two three. four five, six seven ".repeat(1 << 12);
        let whole = tokenizer.encode_text(&words).expect("encoded");
        let before = tokenizer.encodings();
        assert!(tokenizer.encode_long_text(&words).expect("encoded") == whole);
        assert_eq!(tokenizer.encodings() - before, 3);
    }
}
