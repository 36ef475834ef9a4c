//! Rules for text that spells a special token: it stays ordinary text, is converted to the token,
//! or is refused.

use std::sync::{Arc, OnceLock};

use serde::Deserialize;
use tokenizers::AddedToken;

use crate::text::tokenizer::fault;
use crate::text::tokenizer::special::Marks;
use crate::{Error, Result, Tokenizer, TokenizerPair};

/// Treatment of text that spells a special token, such as `</s>`, `<|endoftext|>` or `[SEP]`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SpelledSpecial {
    /// It stays ordinary text, as in all training text.
    #[default]
    Text,
    /// It is converted to the token.
    Read,
    /// It is an error.
    Refuse,
}

/// Rule of a tokenizer for text that spells a special token. The values in `known` are computed
/// when they are first needed, and are shared by clones.
#[derive(Clone, Default)]
pub(super) struct Spelling {
    rule: SpelledSpecial,
    known: Arc<Known>,
}

#[derive(Default)]
struct Known {
    /// Spellings of the special tokens.
    names: OnceLock<Vec<String>>,
    /// Tokenizer that recognises special tokens.
    reader: OnceLock<tokenizers::Tokenizer>,
}

impl Tokenizer {
    /// Sets the `rule` for text that spells a special token.
    #[must_use]
    pub fn with_spelled(&self, rule: SpelledSpecial) -> Self {
        let mut other = self.clone();
        other.spelling.rule = rule;
        other
    }

    /// Rule for text that spells a special token.
    pub fn spelled_rule(&self) -> SpelledSpecial {
        self.spelling.rule
    }

    /// First special token that a text spells; `None` if there is none.
    pub fn spelled(&self, text: &str) -> Option<&str> {
        let names = self.spelling.known.names.get_or_init(|| self.special_names());
        let place = |name: &String| text.find(name.as_str());
        let spelled_names = names.iter().filter_map(|name| Some((place(name)?, name)));
        // If two special tokens begin at the same place, the longer one is chosen, as in the
        // `tokenizers` library.
        let first = spelled_names.min_by_key(|(at, name)| (*at, std::cmp::Reverse(name.len())));
        first.map(|(_, name)| name.as_str())
    }

    /// Refuses a text that spells a special token, if the rule is [`SpelledSpecial::Refuse`].
    ///
    /// # Errors
    ///
    /// [`Error::SpelledSpecial`], with the token, if the text spells one.
    pub fn check_spelled(&self, text: &str) -> Result<()> {
        match self.spelled(text) {
            Some(token) if self.spelling.rule == SpelledSpecial::Refuse => {
                Err(Error::SpelledSpecial { token: token.to_owned() })
            }
            _ => Ok(()),
        }
    }

    /// True if text that spells special tokens is converted to them.
    pub(super) fn reads_special(&self) -> bool {
        self.spelling.rule == SpelledSpecial::Read
    }

    /// The tokenizer of the crate `tokenizers` that treats names of special tokens by the rule.
    ///
    /// # Errors
    ///
    /// If the rule refuses the text, or the library refuses a token.
    pub(super) fn reader_of(&self, text: &str) -> Result<&tokenizers::Tokenizer> {
        match self.spelling.rule {
            SpelledSpecial::Text => Ok(&self.inner),
            SpelledSpecial::Refuse => self.check_spelled(text).map(|()| &*self.inner),
            SpelledSpecial::Read => {
                let reader = &self.spelling.known.reader;
                if let Some(reader) = reader.get() {
                    return Ok(reader);
                }
                let mut inner = (*self.inner).clone();
                // A vocabulary may have special tokens that its file does not mark as special.
                let added = inner.get_added_tokens_decoder();
                let special =
                    |name: &String| added.values().any(|one| one.special && one.content == *name);
                let missing: Vec<AddedToken> = self
                    .special_names()
                    .into_iter()
                    .filter(|name| !special(name))
                    .map(|name| AddedToken::from(name, true))
                    .collect();
                inner.add_special_tokens(missing).map_err(fault("read special tokens"))?;
                inner.set_encode_special_tokens(false);
                Ok(reader.get_or_init(|| inner))
            }
        }
    }

    /// Names of all special tokens: tokens with a role in this project, and tokens that the file
    /// marks as special.
    fn special_names(&self) -> Vec<String> {
        let marks = self.marks().ok();
        let is_mark = |id: u32| {
            marks.is_some_and(|Marks { class, separator, mask }| {
                [class, separator, mask].contains(&id)
            })
        };
        let ids = 0..self.vocabulary_size() as u32;
        let special_ids = ids.filter(|&id| self.special.contains(id) || is_mark(id));
        let mut names: Vec<String> = special_ids.filter_map(|id| self.token(id)).collect();
        let added = self.inner.get_added_tokens_decoder();
        names.extend(added.values().filter(|one| one.special).map(|one| one.content.clone()));
        names.sort_unstable();
        names.dedup();
        names.retain(|name| !name.is_empty());
        names
    }
}

impl TokenizerPair {
    /// Sets the `rule` for text that spells a special token.
    #[must_use]
    pub fn with_spelled(&self, rule: SpelledSpecial) -> Self {
        self.map(|tokenizer| tokenizer.with_spelled(rule))
    }
}
