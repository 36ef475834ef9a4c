//! Encodes text word by word. A text is divided into words in one pass, and the ids of each
//! different word are computed only once.
//!
//! The library `tokenizers` divides text in several steps. Each step records the original place of
//! every byte, and every token becomes a string. This is not needed if only ids are wanted. If the
//! steps are those of the tokenizers [trained here](super::training), this module finds the same
//! words directly. The library still computes the tokens of each new word.

use std::borrow::Cow;
use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};

use ahash::AHashMap;
use tokenizers::pre_tokenizers::metaspace::PrependScheme;
use tokenizers::pre_tokenizers::split::SplitPattern;
use tokenizers::{
    Model, NormalizedString, Normalizer, NormalizerWrapper, PreTokenizerWrapper,
    SplitDelimiterBehavior, Tokenizer,
};
use unicode_categories::UnicodeCategories;

use crate::text::tokenizer::segmentation::SPACE_MARK;

/// Largest number of words whose ids a thread keeps for one tokenizer. They take about 5 MB.
const MOST_WORDS: usize = 1 << 16;
/// Largest number of bytes of a word whose ids are kept.
const LONGEST_WORD: usize = 64;
/// Largest number of encoders whose words a thread keeps.
const MOST_ENCODERS: usize = 4;

/// Rules by which text is divided into words. They can describe only the divisions that this module
/// knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WordDivision {
    /// True if a mark for a space is added before a text that does not begin with a space.
    is_marked: bool,
    isolates_lines: bool,
    isolates_punctuation: bool,
    isolates_digits: bool,
    /// Effect of the normalizer on ASCII text; `None` if it is not known.
    ascii: Option<AsciiForm>,
}

/// Effect of a normalizer on text that is pure ASCII.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AsciiForm {
    Same,
    Lowercase,
}

impl WordDivision {
    /// Division that `normalizer` and `pre_tokenizer` make; `None` if this module does not know it.
    pub(super) fn new(
        normalizer: Option<&NormalizerWrapper>,
        pre_tokenizer: &PreTokenizerWrapper,
    ) -> Option<Self> {
        let steps = match pre_tokenizer {
            PreTokenizerWrapper::Sequence(steps) => steps.as_ref(),
            alone => std::slice::from_ref(alone),
        };
        let (PreTokenizerWrapper::Metaspace(spaces), rest) = steps.split_first()? else {
            return None;
        };
        if !spaces.split || spaces.get_replacement() != SPACE_MARK {
            return None;
        }
        let mut division = Self {
            is_marked: match spaces.prepend_scheme {
                PrependScheme::Always => true,
                PrependScheme::Never => false,
                PrependScheme::First => return None,
            },
            isolates_lines: false,
            isolates_punctuation: false,
            isolates_digits: false,
            ascii: ascii_form(normalizer),
        };
        for step in rest {
            let known = match step {
                PreTokenizerWrapper::Split(split)
                    if split.pattern == SplitPattern::String("\n".to_owned())
                        && split.behavior == SplitDelimiterBehavior::Isolated
                        && !split.invert =>
                {
                    &mut division.isolates_lines
                }
                PreTokenizerWrapper::Punctuation(marks)
                    if marks.behavior == SplitDelimiterBehavior::Isolated =>
                {
                    &mut division.isolates_punctuation
                }
                PreTokenizerWrapper::Digits(digits) if digits.individual_digits => {
                    &mut division.isolates_digits
                }
                _ => return None,
            };
            *known = true;
        }
        Some(division)
    }

    /// Normalises a text. `normalizer` must be the normalizer with which the division was made.
    ///
    /// # Errors
    ///
    /// Errors of the library.
    pub(super) fn normalized<'a>(
        &self,
        normalizer: Option<&NormalizerWrapper>,
        text: &'a str,
    ) -> tokenizers::Result<Cow<'a, str>> {
        match (normalizer, self.ascii) {
            (None, _) => Ok(text.into()),
            (Some(_), Some(AsciiForm::Same)) if text.is_ascii() => Ok(text.into()),
            (Some(_), Some(AsciiForm::Lowercase)) if text.is_ascii() => {
                Ok(text.to_ascii_lowercase().into())
            }
            (Some(normalizer), _) => {
                let mut normalized = NormalizedString::from(text);
                normalizer.normalize(&mut normalized)?;
                Ok(normalized.get().to_owned().into())
            }
        }
    }

    /// Calls `action` with each word of a normalised text.
    ///
    /// # Errors
    ///
    /// Errors of `action`.
    pub(super) fn each_word<E>(
        &self,
        text: &str,
        mut action: impl FnMut(&str) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut word = String::with_capacity(LONGEST_WORD);
        if self.is_marked && !text.is_empty() && !text.starts_with([' ', SPACE_MARK]) {
            word.push(SPACE_MARK);
        }
        for character in text.chars() {
            let is_space = character == ' ' || character == SPACE_MARK;
            let is_alone = !is_space && self.isolates(character);
            if (is_space || is_alone) && !word.is_empty() {
                action(&word)?;
                word.clear();
            }
            word.push(if is_space { SPACE_MARK } else { character });
            if is_alone {
                action(&word)?;
                word.clear();
            }
        }
        if word.is_empty() { Ok(()) } else { action(&word) }
    }

    /// True if a character is a word by itself.
    fn isolates(&self, character: char) -> bool {
        if character.is_ascii_alphabetic() {
            return false;
        }
        self.isolates_lines && character == '\n'
            || self.isolates_digits && character.is_numeric()
            || self.isolates_punctuation
                && (character.is_ascii_punctuation() || character.is_punctuation())
    }
}

/// Effect of a normalizer on ASCII text; `None` if it is not known.
fn ascii_form(normalizer: Option<&NormalizerWrapper>) -> Option<AsciiForm> {
    match normalizer? {
        NormalizerWrapper::NFKC(_) => Some(AsciiForm::Same),
        NormalizerWrapper::Lowercase(_) => Some(AsciiForm::Lowercase),
        NormalizerWrapper::Sequence(steps) => {
            let forms: Option<Vec<AsciiForm>> =
                steps.as_ref().iter().map(|step| ascii_form(Some(step))).collect();
            let is_lowercase = forms?.contains(&AsciiForm::Lowercase);
            Some(if is_lowercase { AsciiForm::Lowercase } else { AsciiForm::Same })
        }
        _ => None,
    }
}

/// Encoder of texts that are divided into words.
#[derive(Debug)]
pub(super) struct WordEncoder {
    /// Number that identifies the encoder among all encoders of this process.
    id: u64,
    division: WordDivision,
}

/// Ids of the words that were encoded so far.
#[derive(Default)]
struct KnownWords {
    /// Index in `ids` of the first id of each word, and the number of its ids.
    places: AHashMap<Box<str>, (u32, u32)>,
    ids: Vec<u32>,
}

thread_local! {
    /// Known words of several encoders. Each entry begins with the `id` of its encoder.
    static KNOWN: RefCell<Vec<(u64, KnownWords)>> = const { RefCell::new(Vec::new()) };
}

impl WordEncoder {
    /// Makes an encoder that gives the same ids as `inner`; `None` if this module does not know how
    /// `inner` divides text.
    pub(super) fn from_tokenizer(inner: &Tokenizer) -> Option<Self> {
        static ENCODERS: AtomicU64 = AtomicU64::new(0);
        // Added tokens that a text may contain must be found before words are divided, which this
        // module does not do.
        if inner.get_added_tokens_decoder().values().any(|token| !token.special) {
            return None;
        }
        let division = WordDivision::new(inner.get_normalizer(), inner.get_pre_tokenizer()?)?;
        Some(Self { id: ENCODERS.fetch_add(1, Ordering::Relaxed), division })
    }

    /// Ids of a text. `inner` must be the tokenizer for which this encoder was made.
    ///
    /// # Errors
    ///
    /// Errors of the library.
    pub(super) fn encode(&self, inner: &Tokenizer, text: &str) -> tokenizers::Result<Vec<u32>> {
        let text = self.division.normalized(inner.get_normalizer(), text)?;
        let mut ids = Vec::with_capacity(text.len() / 3 + 2);
        KNOWN.with_borrow_mut(|encoders| {
            let known = self.known(encoders);
            self.division.each_word(&text, |word| -> tokenizers::Result<()> {
                if let Some(word_ids) = known.ids_of(word) {
                    ids.extend_from_slice(word_ids);
                    return Ok(());
                }
                let before = ids.len();
                let tokens = inner.get_model().tokenize(word)?;
                ids.extend(tokens.into_iter().map(|token| token.id));
                known.keep(word, &ids[before..]);
                Ok(())
            })
        })?;
        Ok(ids)
    }

    /// Entry of this encoder in `encoders`, the known words of a thread. The entry is added if it
    /// is missing.
    fn known<'a>(&self, encoders: &'a mut Vec<(u64, KnownWords)>) -> &'a mut KnownWords {
        let place = encoders.iter().position(|(id, _)| *id == self.id);
        let place = place.unwrap_or_else(|| {
            if encoders.len() == MOST_ENCODERS {
                encoders.remove(0);
            }
            encoders.push((self.id, KnownWords::default()));
            encoders.len() - 1
        });
        &mut encoders[place].1
    }
}

impl KnownWords {
    /// Ids of a word; `None` if it is not known.
    fn ids_of(&self, word: &str) -> Option<&[u32]> {
        let &(start, length) = self.places.get(word)?;
        self.ids.get(start as usize..(start + length) as usize)
    }

    /// Keeps the ids of a word, if there is room.
    fn keep(&mut self, word: &str, ids: &[u32]) {
        if word.len() <= LONGEST_WORD && self.places.len() < MOST_WORDS {
            self.places.insert(word.into(), (self.ids.len() as u32, ids.len() as u32));
            self.ids.extend_from_slice(ids);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::tokenizer::segmentation::Layout;
    use crate::{TokenizerConfig, TokenizerKind};

    /// Tokenizers that divide text into words, for single sentences and for running text, with and
    /// without normalisation.
    fn tokenizers() -> Vec<crate::Tokenizer> {
        let mut trained = Vec::new();
        for (kind, byte_fallback) in [
            (TokenizerKind::Bpe, true),
            (TokenizerKind::Bpe, false),
            (TokenizerKind::Unigram, true),
        ] {
            for (layout, changed) in
                [(Layout::Sentences, false), (Layout::Sentences, true), (Layout::RunningText, true)]
            {
                let config = TokenizerConfig {
                    kind,
                    byte_fallback,
                    vocabulary_size: 420,
                    character_coverage: 0.98,
                    ..TokenizerConfig::default()
                };
                let texts = ["one two three. four five, six seven", "三二一。四五六, eight 12 дом"];
                let texts = (0..20).map(|number| Ok(texts[number % 2].to_owned()));
                let tokenizer =
                    crate::Tokenizer::train_for(layout, &config, changed, changed, texts);
                trained.push(tokenizer.expect("trains"));
            }
        }
        trained
    }

    fn assert_same(tokenizer: &crate::Tokenizer, encoder: &WordEncoder, text: &str) {
        let library = tokenizer.inner.encode_fast(text, false).expect("encoded");
        let ids = encoder.encode(&tokenizer.inner, text).expect("encoded");
        assert_eq!(ids, library.get_ids(), "{text:?}");
    }

    #[test]
    fn texts_have_the_ids_of_the_library() {
        const PARTS: [&str; 24] = [
            "one", "two ", " three", "  ", " ", "\u{2581}", "\n", "\t", ".", "…", "12", "٣", "½",
            "三", "。", "é", "e\u{301}", "ﬁ", "😀", "<unk>", "</s>", "ＡＢ", "ДОМ", "\u{a0}",
        ];
        for tokenizer in tokenizers() {
            let encoder = WordEncoder::from_tokenizer(&tokenizer.inner).expect("known");
            let mut state = 1_u64;
            for length in 0..3000 {
                let mut text = String::new();
                for _ in 0..length % 23 {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
                    text.push_str(PARTS[(state >> 33) as usize % PARTS.len()]);
                }
                assert_same(&tokenizer, &encoder, &text);
            }
        }
    }

    #[test]
    fn characters_of_all_scripts_have_the_ids_of_the_library() {
        for tokenizer in tokenizers() {
            let encoder = WordEncoder::from_tokenizer(&tokenizer.inner).expect("known");
            let characters: Vec<char> = ('\0'..='\u{2FFFF}').collect();
            for few in characters.chunks(40) {
                let text: String = few.iter().flat_map(|&one| ['o', one, 'n', one, ' ']).collect();
                assert_same(&tokenizer, &encoder, &text);
            }
        }
    }

    #[test]
    fn only_known_divisions_are_taken() {
        for kind in [TokenizerKind::Bytes, TokenizerKind::Char] {
            let config = TokenizerConfig { kind, vocabulary_size: 420, ..Default::default() };
            let texts = std::iter::once(Ok("one two three".to_owned()));
            let tokenizer = crate::Tokenizer::train(&config, false, false, texts).expect("trains");
            assert!(WordEncoder::from_tokenizer(&tokenizer.inner).is_none());
        }
        let tagged = tokenizers().remove(0).with_tags(&["<2de>".to_owned()]).expect("tagged");
        assert!(WordEncoder::from_tokenizer(&tagged.inner).is_none());
        assert!(tagged.tokens("a <2de> b").expect("encoded").contains(&"<2de>".to_owned()));
    }
}
