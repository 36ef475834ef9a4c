//! Reads and writes the files of tokenizers.

use std::path::Path;
use std::sync::Arc;

use tokenizers::PostProcessorWrapper;

use crate::files::{read_regular, write_atomically};
use crate::text::panics::caught;
use crate::text::tokenizer::special::{FolderTokens, SpecialTokens, unknown_of};
use crate::text::tokenizer::{FILE, Folder, SPECIAL_TOKENS, Tokenizer, fault};
use crate::{Error, Result};

/// Largest number of bytes of a tokenizer's file. The files of vocabularies with millions of tokens
/// have some hundred MB.
const MOST_BYTES: u64 = 1 << 30;

impl Tokenizer {
    /// Loads a `tokenizer.json`. If the tokenizer was imported, also loads the file of [facts about
    /// the imported model](FolderTokens) next to it.
    ///
    /// # Errors
    ///
    /// If the file is missing or not a tokenizer, or lacks a special token at its id.
    pub fn load(path: &Path) -> Result<Self> {
        let json = read_json(path)?.ok_or_else(|| Error::Missing {
            path: path.to_owned(),
            tried: String::new(),
            hint: "name a tokenizer.json, or leave data.tokenizer.path out to train one".to_owned(),
        })?;
        Self::from_json(&json, read_json(&FolderTokens::path(path))?, path)
    }

    /// Loads a `tokenizer.json` like [`Self::load`]. If its content equals the file of `other`,
    /// both tokenizers share one tokenizer of the `tokenizers` library, because a tokenizer with
    /// 256,000 pieces takes about 200 MB. This is the case for two languages with one vocabulary.
    ///
    /// # Errors
    ///
    /// Errors of [`Self::load`].
    pub(crate) fn load_beside(other: &Self, path: &Path) -> Result<Self> {
        let folder = read_json(&FolderTokens::path(path))?;
        let Some(folder) = folder.filter(|_| other.folder.is_some()) else {
            return Self::load(path);
        };
        match read_json(path)? {
            Some(json) if json == *other.json => other.with_facts(folder, path),
            _ => Self::load(path),
        }
    }

    /// Makes a tokenizer for an import from `json`, the content of the file `path`. The file may
    /// lack the special tokens of this project. The roles of the file's own special tokens are
    /// [added](Tokenizer::with_folder) later.
    ///
    /// # Errors
    ///
    /// If the content is not a tokenizer.
    pub fn of_others(json: &str, path: &Path) -> Result<Self> {
        let inner = parsed(json, path)?;
        let special = SpecialTokens { unknown: unknown_of(&inner), ..SpecialTokens::default() };
        Self::new(inner, json, special, None)
    }

    /// Returns a tokenizer with the same tokens, and with the facts `tokens` about the imported
    /// model.
    ///
    /// # Errors
    ///
    /// If the facts name tokens beyond the vocabulary, or no end token.
    pub fn with_folder(&self, tokens: &FolderTokens) -> Result<Self> {
        self.with_facts(tokens.to_json()?, Path::new(FILE))
    }

    /// Makes a tokenizer with the same tokens, and with the facts in `folder`. `folder` is the
    /// content of the file of facts next to `path`. Both tokenizers share one tokenizer of the
    /// library.
    fn with_facts(&self, folder: String, path: &Path) -> Result<Self> {
        let tokens = FolderTokens::from_json(&folder, &FolderTokens::path(path))?;
        if tokens.sentence_piece_forms != self.forms.is_some() {
            return Self::from_json(&self.json, Some(folder), path);
        }
        let special = tokens.special.clone();
        let folder = Some(Folder { tokens, json: folder });
        let (inner, forms) = (self.inner.clone(), self.forms.clone());
        Ok(Self::of_parts(inner, forms, self.json.clone(), self.ids, special, folder))
    }

    /// Makes a tokenizer from `json`, the content of the file `path`, and from `folder`, the
    /// content of the file of facts next to it. `folder` is `None` if there is no such file.
    pub(super) fn from_json(json: &str, folder: Option<String>, path: &Path) -> Result<Self> {
        let inner = parsed(json, path)?;
        if let Some(folder) = folder {
            let tokens = FolderTokens::from_json(&folder, &FolderTokens::path(path))?;
            let special = tokens.special.clone();
            return Self::new(inner, json, special, Some(Folder { tokens, json: folder }));
        }
        let (special, are_ours) = SpecialTokens::implied(&inner);
        if are_ours {
            require_special_tokens(&inner, path)?;
        }
        Self::new(inner, json, special, None)
    }

    /// Returns this tokenizer if its special tokens are known: they are those of this project, or
    /// the tokenizer has facts about an imported model. `path` is its file, for errors.
    ///
    /// # Errors
    ///
    /// [`Error::SpecialToken`] if it has no facts and lacks a special token.
    pub(crate) fn with_known_specials(self, path: &Path) -> Result<Self> {
        match &self.folder {
            Some(_) => Ok(self),
            None => self.with_special_tokens(path),
        }
    }

    /// True if `other` has the same tokens with the same ids.
    pub(crate) fn has_vocabulary_of(&self, other: &Self) -> bool {
        // Two imported SentencePiece models can share one vocabulary although each knows only some
        // of its pieces. The file of each then has the other pieces with a space before them, so
        // that they never match a text. Such spaces are ignored here.
        let token = |of: &Self, id| of.token(id).map(|token| token.trim_start().to_owned());
        let is_same = |id| token(self, id) == token(other, id);
        (self.vocabulary_size, self.ids) == (other.vocabulary_size, other.ids)
            && (Arc::ptr_eq(&self.inner, &other.inner) || (0..self.ids as u32).all(is_same))
    }

    /// Returns this tokenizer if it has every special token of this project. `path` is its file,
    /// for errors.
    ///
    /// # Errors
    ///
    /// [`Error::SpecialToken`] if it lacks a special token.
    pub(crate) fn with_special_tokens(self, path: &Path) -> Result<Self> {
        if !self.is_ours {
            require_special_tokens(&self.inner, path)?;
        }
        Ok(self)
    }

    /// Writes the `tokenizer.json`, exactly as it was loaded or trained. If there are facts about
    /// an imported model, writes them to a file next to it.
    ///
    /// # Errors
    ///
    /// If a file cannot be written.
    pub fn save(&self, path: &Path) -> Result<()> {
        if let Some(folder) = &self.folder {
            write_atomically(&FolderTokens::path(path), folder.json.as_bytes())?;
        }
        self.save_file(path)
    }

    /// Writes only the `tokenizer.json`, exactly as it was loaded or trained.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn save_file(&self, path: &Path) -> Result<()> {
        write_atomically(path, self.json.as_bytes())
    }

    /// Content of the `tokenizer.json` with the post-processor `json`, which puts special tokens
    /// around texts. `None` if the tokenizer already has a post-processor.
    ///
    /// # Errors
    ///
    /// If the library refuses the post-processor.
    pub fn with_post_processor(&self, json: &serde_json::Value) -> Result<Option<String>> {
        if self.inner.get_post_processor().is_some() {
            return Ok(None);
        }
        let fault = fault("put special tokens around texts");
        let processor: PostProcessorWrapper =
            serde_json::from_value(json.clone()).map_err(|error| fault(error.into()))?;
        let mut inner = (*self.inner).clone();
        inner.with_post_processor(Some(processor));
        self.written(&inner).map(Some)
    }
}

/// Reads the text of a JSON file; `None` if the file does not exist.
fn read_json(path: &Path) -> Result<Option<String>> {
    let bytes = match read_regular(path, MOST_BYTES) {
        Ok(bytes) => bytes,
        Err(source) if source.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(Error::io(path, source)),
    };
    let text = String::from_utf8(bytes).map_err(|error| Error::Malformed {
        path: path.to_owned(),
        message: format!("not a tokenizer.json ({error})"),
    })?;
    Ok(Some(text))
}

/// Parses the content `json` of the file `path`.
fn parsed(json: &str, path: &Path) -> Result<tokenizers::Tokenizer> {
    let malformed = |reason: String| Error::Malformed {
        path: path.to_owned(),
        message: format!("not a tokenizer.json of the tokenizers library ({reason})"),
    };
    // The file is first checked to be JSON, because the library panics for some files that are not,
    // instead of returning an error.
    serde_json::from_str::<serde::de::IgnoredAny>(json)
        .map_err(|error| malformed(error.to_string()))?;
    caught(|| json.parse())
        .map_err(|reason| malformed(format!("the library gave up on it: {reason}")))?
        .map_err(|error: tokenizers::Error| malformed(error.to_string()))
}

/// Refuses a tokenizer without the special tokens at their ids.
fn require_special_tokens(inner: &tokenizers::Tokenizer, path: &Path) -> Result<()> {
    for (expected, token) in (0_u32..).zip(SPECIAL_TOKENS) {
        let id_found = inner.token_to_id(token);
        if id_found != Some(expected) {
            return Err(Error::SpecialToken {
                path: path.to_owned(),
                token,
                expected,
                found: id_found.map_or("is absent".to_owned(), |id| format!("has id {id}")),
            });
        }
    }
    Ok(())
}
