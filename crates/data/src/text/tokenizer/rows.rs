//! Rows of translation models: the tokens of a text, with the special tokens and prefixes around
//! them.

use crate::config::language_mark;
use crate::text::tokenizer::Tokenizer;
use crate::text::tokenizer::special::SpecialTokens;
use crate::{Error, LanguageTag, Result};

impl Tokenizer {
    /// Adds the tokens of `text`, such as the name of a task, before every source of a translation.
    /// They do not change the tokenizer's [hash](Tokenizer::hash).
    ///
    /// # Errors
    ///
    /// See [`Tokenizer::encode`].
    pub(in crate::text) fn with_source_prefix(&self, text: &str) -> Result<Self> {
        // A blank at the end of `text` is left out, because it belongs to the first token of the
        // source that follows.
        let source_prefix = match text.trim_end() {
            "" => [].into(),
            text => self.encode(text)?.into(),
        };
        Ok(Self { source_prefix, ..self.clone() })
    }

    /// Puts the token of a target language, such as `<2de>` for `de`, before every source or before
    /// every target, depending on `tag`. A token of another language that an earlier call put there
    /// is replaced. The token does not change the tokenizer's [hash](Tokenizer::hash).
    ///
    /// # Errors
    ///
    /// If the vocabulary lacks the token.
    pub(in crate::text) fn with_target_language(
        &self,
        language: &str,
        tag: LanguageTag,
    ) -> Result<Self> {
        let mark = language_mark(language);
        let id = self.id(&mark).ok_or_else(|| Error::Tokenizer {
            action: "mark the target language",
            message: format!(
                "the vocabulary has no token {mark}: it was trained without this language"
            ),
        })?;
        let mut marked = Self { names_language: true, ..self.clone() };
        let named = usize::from(self.names_language && tag == LanguageTag::Source);
        match tag {
            // The token of the language is put before the prefix that the recipe configures.
            LanguageTag::Source => {
                marked.source_prefix = [&[id], &self.source_prefix[named..]].concat().into();
            }
            LanguageTag::Target => marked.target_prefix = [id].into(),
        }
        Ok(marked)
    }

    /// True if rows contain the token of a target language.
    pub(in crate::text) fn names_language(&self) -> bool {
        self.names_language
    }

    /// Tokens before the text of every target of a translation, after the start token.
    pub fn before_target(&self) -> Vec<u32> {
        [&self.special.before, &*self.target_prefix].concat()
    }

    /// Returns `output`, the tokens that a model wrote, without the [tokens before every
    /// target](Self::before_target). If `output` does not begin with these tokens, it is returned
    /// unchanged.
    #[must_use]
    pub fn without_before_target<'a>(&self, output: &'a [u32]) -> &'a [u32] {
        output.strip_prefix(self.before_target().as_slice()).unwrap_or(output)
    }

    /// Number of tokens before the text in a [row of a source](Self::source_row).
    pub fn tokens_before_source(&self) -> usize {
        self.special.before.len() + self.source_prefix.len()
    }

    /// Row that a translation encoder reads for a source text with the token ids `ids`: the tokens
    /// before every source, `ids`, the end token, and the tokens after the end.
    pub fn source_row(&self, ids: impl IntoIterator<Item = u32>) -> Vec<u32> {
        let SpecialTokens { before, after, .. } = &*self.special;
        let before = before.iter().chain(&*self.source_prefix).copied();
        before.chain(ids).chain([self.end()]).chain(after.iter().copied()).collect()
    }

    /// Number of tokens around the text in a [row of a source](Self::source_row).
    pub fn tokens_around_source(&self) -> usize {
        self.tokens_before_source() + 1 + self.special.after.len()
    }

    /// Number of tokens around the text in a [row of answers](Self::answer_row).
    pub(crate) fn tokens_around_answer(&self) -> usize {
        self.special.before.len() + self.target_prefix.len() + 1
    }

    /// Tokens that a translation decoder should predict for a target text with the token ids `ids`:
    /// the tokens before every target, `ids`, and the end token.
    pub fn answer_row(&self, ids: impl IntoIterator<Item = u32>) -> Vec<u32> {
        self.before_target().into_iter().chain(ids).chain([self.end()]).collect()
    }

    /// Row that a translation decoder reads for a target text with the token ids `ids`: the start
    /// token, the tokens before every target, and `ids`. From this row, the decoder predicts the
    /// [row of answers](Self::answer_row).
    pub fn target_row(&self, ids: impl IntoIterator<Item = u32>) -> Vec<u32> {
        [self.decoder_start()].into_iter().chain(self.before_target()).chain(ids).collect()
    }
}
