//! Adds tokens to a trained tokenizer, and writes its file with these tokens.

use std::path::Path;

use serde_json::Value;
use tokenizers::AddedToken;

use crate::Result;
use crate::text::tokenizer::special::MARKS;
use crate::text::tokenizer::{FILE, Tokenizer, fault};

impl Tokenizer {
    /// Adds a token for each of `tags`. The token is recognised wherever a text contains the tag.
    ///
    /// # Errors
    ///
    /// If the library refuses a token.
    pub(crate) fn with_tags(self, tags: &[String]) -> Result<Self> {
        if tags.is_empty() {
            return Ok(self);
        }
        let mut inner = (*self.inner).clone();
        // The tags in a text are not normalised, but the text around them is.
        let added = tags.iter().map(|tag| AddedToken::from(tag.as_str(), false).normalized(false));
        inner.add_tokens(added.collect::<Vec<_>>()).map_err(fault("add tags"))?;
        self.replaced(&inner)
    }

    /// Adds the special tokens in [`MARKS`] that are missing. Text that spells them is not
    /// converted to them.
    ///
    /// # Errors
    ///
    /// If the library refuses a token.
    pub(crate) fn with_marks(self) -> Result<Self> {
        if self.marks().is_ok() {
            return Ok(self);
        }
        let mut inner = (*self.inner).clone();
        let added = MARKS.map(|mark| AddedToken::from(mark, true));
        inner.add_special_tokens(added).map_err(fault("add marks"))?;
        self.replaced(&inner)
    }

    /// Adds the tokens of languages in `marks` that are missing. Text that spells them is not
    /// converted to them.
    ///
    /// # Errors
    ///
    /// If the library refuses a token.
    pub(crate) fn with_language_marks(self, marks: &[String]) -> Result<Self> {
        if marks.iter().all(|mark| self.id(mark).is_some()) {
            return Ok(self);
        }
        let mut inner = (*self.inner).clone();
        let added = marks.iter().map(|mark| AddedToken::from(mark.as_str(), true));
        inner.add_special_tokens(added.collect::<Vec<_>>()).map_err(fault("add languages"))?;
        self.replaced(&inner)
    }

    /// Makes a tokenizer from `inner`, which is a copy of the library's tokenizer with added
    /// tokens.
    fn replaced(&self, inner: &tokenizers::Tokenizer) -> Result<Self> {
        let json = self.written(inner)?;
        let folder = self.folder.as_ref().map(|folder| folder.json.clone());
        Self::from_json(&json, folder, Path::new(FILE))
    }

    /// Writes `inner`, a changed copy of the library's tokenizer, as the content of a
    /// `tokenizer.json`. Its normalizer is taken from the original file, because `inner` no longer
    /// contains the map of characters to their normal forms.
    pub(super) fn written(&self, inner: &tokenizers::Tokenizer) -> Result<String> {
        let fault = fault("write its file");
        let json = inner.to_string(true).map_err(&fault)?;
        if self.forms.is_none() {
            return Ok(json);
        }
        let read =
            |json: &str| serde_json::from_str::<Value>(json).map_err(|error| fault(error.into()));
        let mut file = read(&json)?;
        file["normalizer"] = read(&self.json)?["normalizer"].take();
        serde_json::to_string_pretty(&file).map_err(|error| fault(error.into()))
    }
}
