//! Converts text to token ids and ids to text. The work is done by the library `tokenizers`, which
//! stores a tokenizer in a file `tokenizer.json`.
//!
//! The special tokens have fixed ids, on which batches and decoding rely: `<pad>` 0, `<unk>` 1,
//! `<s>` 2, `</s>` 3. Text that spells a special token is not converted to the token, unless this
//! is [requested](crate::SpelledSpecial). Tokenizers of imported models have [their own special
//! tokens](special).

mod added;
mod by_words;
mod character_map;
pub(crate) mod encoded;
mod files;
pub(crate) mod pair;
mod rows;
pub(crate) mod segmentation;
pub(crate) mod special;
pub(crate) mod spelled;
pub(crate) mod training;
mod vocabulary;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rayon::prelude::*;
use sha2::{Digest, Sha256};
use tokenizers::{ModelWrapper, NormalizedString, Normalizer};

use crate::file_names::hexadecimal;
use crate::text::panics::of_text;
use crate::text::tokenizer::by_words::WordEncoder;
use crate::text::tokenizer::character_map::CharacterMap;
use crate::text::tokenizer::segmentation::Layout;
use crate::text::tokenizer::special::{FolderTokens, MARKS, Marks, RowMarks, SpecialTokens};
use crate::text::tokenizer::spelled::Spelling;
use crate::text::tokenizer::training::train;
use crate::{Error, Result, TokenizerConfig};
pub(crate) use vocabulary::{byte_token, is_text};

/// The id of `<pad>`.
pub const PAD: u32 = 0;
/// The id of `<unk>`.
pub const UNKNOWN: u32 = 1;
/// The id of `<s>`, before the first target token.
pub const START: u32 = 2;
/// The id of `</s>`, after the last token of either side.
pub const END: u32 = 3;
/// The special tokens, each at the index that is its id.
pub const SPECIAL_TOKENS: [&str; 4] = ["<pad>", "<unk>", "<s>", "</s>"];

/// Name of the tokenizer's file in a run, if source and target share one tokenizer.
pub(crate) const FILE: &str = "tokenizer.json";

/// Tokenizer of one language, or of both languages of a pair. A clone shares most of its memory.
#[derive(Clone)]
pub struct Tokenizer {
    pub(super) inner: Arc<tokenizers::Tokenizer>,
    /// Map of characters to their normal forms, which is applied before the library's tokenizer.
    forms: Option<Arc<CharacterMap>>,
    /// Encoder that works word by word. `None` if it does not know how the library's tokenizer
    /// divides text into words.
    words: Option<Arc<WordEncoder>>,
    json: Arc<str>,
    hash: Arc<str>,
    /// Largest id that the library's tokenizer knows, plus one.
    ids: usize,
    vocabulary_size: usize,
    pub(super) special: Arc<SpecialTokens>,
    spelling: Spelling,
    /// True if the vocabulary has the special tokens of this project at their ids.
    is_ours: bool,
    folder: Option<Arc<Folder>>,
    /// Tokens before the text of every source of a translation.
    source_prefix: Arc<[u32]>,
    /// Tokens before the text of every target of a translation.
    target_prefix: Arc<[u32]>,
    /// True if `source_prefix` or `target_prefix` begins with the token of a target language.
    names_language: bool,
    /// Number of texts that were encoded. Clones share this counter.
    encodings: Arc<AtomicU64>,
}

/// Facts about the tokens of an imported model, from the files of its folder.
#[derive(Debug)]
struct Folder {
    tokens: FolderTokens,
    /// Content of the JSON file in which the facts are stored.
    json: String,
}

impl fmt::Debug for Tokenizer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Tokenizer")
            .field("vocabulary_size", &self.vocabulary_size)
            .field("hash", &self.hash)
            .finish_non_exhaustive()
    }
}

/// Converts an error of the library to an error that names the attempted action.
pub(crate) fn fault(action: &'static str) -> impl Fn(tokenizers::Error) -> Error {
    move |error| Error::Tokenizer { action, message: error.to_string() }
}

impl Tokenizer {
    /// Trains a tokenizer of sentences. The same texts give the same tokenizer, on any number of
    /// threads.
    ///
    /// # Errors
    ///
    /// If a text cannot be read, if there is no text, or if the vocabulary is too small for the
    /// special tokens, the bytes and the characters that `character_coverage` requires.
    pub fn train(
        config: &TokenizerConfig,
        nfkc: bool,
        lowercase: bool,
        texts: impl Iterator<Item = Result<String>>,
    ) -> Result<Self> {
        Self::train_for(Layout::Sentences, config, nfkc, lowercase, texts)
    }

    /// Makes a tokenizer of words that white space separates. `words` is the vocabulary, in the
    /// order of ids, and must begin with the special tokens of this project. Words between `<` and
    /// `>` are special tokens too.
    ///
    /// # Errors
    ///
    /// If the special tokens are missing.
    pub fn of_words(words: &[String]) -> Result<Self> {
        let special = (0_u32..)
            .zip(words)
            .filter(|(_, word)| word.starts_with('<') && word.ends_with('>') && word.len() > 2);
        let added: Vec<_> = special
            .map(|(id, word)| {
                serde_json::json!({
                    "id": id, "content": word, "single_word": false, "lstrip": false,
                    "rstrip": false, "normalized": false, "special": true,
                })
            })
            .collect();
        let ids: BTreeMap<&String, u32> = words.iter().zip(0..).collect();
        let json = serde_json::json!({
            "version": "1.0",
            "truncation": null,
            "padding": null,
            "added_tokens": added,
            "normalizer": null,
            "pre_tokenizer": { "type": "WhitespaceSplit" },
            "post_processor": null,
            "decoder": null,
            "model": {
                "type": "WordLevel", "vocab": ids, "unk_token": SPECIAL_TOKENS[UNKNOWN as usize],
            },
        });
        Self::from_json(&json.to_string(), None, Path::new(FILE))
    }

    /// Trains a tokenizer like [`Tokenizer::train`]. `layout` says whether the texts are single
    /// sentences or running text of many lines.
    ///
    /// # Errors
    ///
    /// See [`Tokenizer::train`].
    pub(crate) fn train_for(
        layout: Layout,
        config: &TokenizerConfig,
        nfkc: bool,
        lowercase: bool,
        texts: impl Iterator<Item = Result<String>>,
    ) -> Result<Self> {
        let trained = train(config, layout, nfkc, lowercase, texts)?;
        let json = trained.to_string(true).map_err(fault("write its file"))?;
        Self::from_json(&json, None, Path::new(FILE))
    }

    /// Ids of the marks (special tokens that only text encoders need), which are [`MARKS`] or their
    /// counterparts in an imported model.
    ///
    /// # Errors
    ///
    /// If the vocabulary lacks a mark.
    pub(crate) fn marks(&self) -> Result<Marks> {
        self.special.marks().or_else(|| Marks::find(&self.inner, MARKS)).ok_or_else(|| {
            let message = format!(
                "the vocabulary lacks some of {}, and has no counterparts of another model",
                MARKS.join(", ")
            );
            Error::Tokenizer { action: "mark a text", message }
        })
    }

    /// Marks of the rows (token sequences) of an encoder. The vocabulary need not have the
    /// placeholder for hidden tokens.
    ///
    /// # Errors
    ///
    /// If the vocabulary lacks a mark.
    pub(crate) fn row_marks(&self) -> Result<RowMarks> {
        let (class, separator) = match (self.special.class, self.special.separator) {
            (Some(class), Some(separator)) => (class, separator),
            _ => self.marks().map(|Marks { class, separator, .. }| (class, separator))?,
        };
        let SpecialTokens { doubled_separator, shared_segment, .. } = *self.special;
        let (between, second_segment) =
            (1 + usize::from(doubled_separator), u32::from(!shared_segment));
        Ok(RowMarks { class, separator, between, second_segment })
    }

    /// Ids of three special tokens of text encoders. The first is at the beginning of a row (such
    /// as `<cls>`), the second is after each text of a row (such as `<sep>`), and the third stands
    /// for a hidden token (such as `<mask>`). `None` for a token that the vocabulary lacks.
    pub fn mark_ids(&self) -> [Option<u32>; 3] {
        match self.marks() {
            Ok(Marks { class, separator, mask }) => [Some(class), Some(separator), Some(mask)],
            Err(_) => [self.special.class, self.special.separator, self.special.mask],
        }
    }

    fn new(
        mut inner: tokenizers::Tokenizer,
        json: &str,
        special: SpecialTokens,
        folder: Option<Folder>,
    ) -> Result<Self> {
        // Text that spells a special token is ordinary text. The library does not store this
        // setting in the file.
        inner.set_encode_special_tokens(true);
        // An imported file may configure dropout, which would segment the same text differently
        // each time, even in translation. Here, dropout is a setting of the training and is used
        // only in training.
        if let ModelWrapper::BPE(bpe) = inner.get_model()
            && bpe.dropout.is_some()
        {
            let mut bpe = bpe.clone();
            bpe.dropout = None;
            inner.with_model(bpe);
        }
        // An imported file may configure padding and truncation. They are removed, because batches
        // here are not padded: rows of different lengths follow one another.
        inner.with_padding(None);
        inner.with_truncation(None).map_err(fault("switch truncation off"))?;
        // An id may exceed the number of tokens if an imported file has gaps.
        let ids = inner.get_vocab(true).values().max().map_or(0, |id| *id as usize + 1);
        let mut forms = None;
        if folder.as_ref().is_some_and(|folder| folder.tokens.sentence_piece_forms) {
            let message = |message| Error::Tokenizer { action: "normalise text", message };
            forms = CharacterMap::taken_from(&mut inner).map_err(message)?.map(Arc::new);
        }
        Ok(Self::of_parts(Arc::new(inner), forms, json.into(), ids, special, folder))
    }

    /// Makes a tokenizer from a tokenizer of the library. `json` is the content of its file, and
    /// `ids` its largest id plus one.
    fn of_parts(
        inner: Arc<tokenizers::Tokenizer>,
        forms: Option<Arc<CharacterMap>>,
        json: Arc<str>,
        ids: usize,
        special: SpecialTokens,
        folder: Option<Folder>,
    ) -> Self {
        let mut hash = Sha256::new();
        hash.update(&*json);
        if let Some(folder) = &folder {
            hash.update("\n");
            hash.update(&folder.json);
        }
        // The embedding matrix of a model may have more rows than the tokenizer has ids.
        let rows = folder.as_ref().map_or(0, |folder| folder.tokens.vocabulary_size);
        let without_row = folder.as_ref().map_or(0, |folder| folder.tokens.without_row);
        Self {
            vocabulary_size: ids.saturating_sub(without_row).max(rows),
            is_ours: (0..)
                .zip(SPECIAL_TOKENS)
                .all(|(id, token)| inner.token_to_id(token) == Some(id)),
            words: WordEncoder::from_tokenizer(&inner).map(Arc::new),
            inner,
            forms,
            json,
            ids,
            hash: hexadecimal(&hash.finalize()).into(),
            special: Arc::new(special),
            spelling: Spelling::default(),
            folder: folder.map(Arc::new),
            source_prefix: [].into(),
            target_prefix: [].into(),
            names_language: false,
            encodings: Arc::default(),
        }
    }

    /// The content of the `tokenizer.json`.
    #[must_use]
    pub fn json(&self) -> &str {
        &self.json
    }

    /// Facts about the tokens of the imported model; `None` if the tokenizer was not imported.
    pub fn folder(&self) -> Option<&FolderTokens> {
        self.folder.as_deref().map(|folder| &folder.tokens)
    }

    /// Ids of a text. They contain special tokens only if the text spells them and [the
    /// rule](crate::SpelledSpecial) for such text converts it to special tokens.
    ///
    /// # Errors
    ///
    /// If the library or the rule refuses the text.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        let reader = self.reader_of(text)?;
        self.encodings.fetch_add(1, Ordering::Relaxed);
        let normal = self.with_forms(text);
        let ids = of_text("encode", text, || match &self.words {
            Some(words) if !self.reads_special() => words.encode(&self.inner, &normal),
            _ => Ok(reader.encode_fast(&*normal, false)?.get_ids().to_vec()),
        })?;
        self.plain(&ids)
    }

    /// Replaces the characters of a text by their normal forms. The result is the input of the
    /// library's tokenizer.
    fn with_forms<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match &self.forms {
            Some(forms) => forms.text(text).into(),
            None => text.into(),
        }
    }

    /// Replaces special tokens in `ids`, which the library gives for a text, by the id of unknown
    /// text.
    ///
    /// # Errors
    ///
    /// If the model has no row for a token, and no token for unknown text.
    fn plain(&self, ids: &[u32]) -> Result<Vec<u32>> {
        // In an imported model, the special tokens may be ordinary pieces of the vocabulary, so the
        // library may produce them from text.
        let is_beyond = |id: u32| id as usize >= self.vocabulary_size;
        let is_other =
            |id: u32| is_beyond(id) || (self.special.contains(id) && !self.reads_special());
        let plain = |&id: &u32| match self.special.unknown {
            Some(unknown) if is_other(id) => Ok(unknown),
            None if is_beyond(id) => Err(Error::Tokenizer {
                action: "encode a text",
                message: format!(
                    "it has the token {:?} with the id {id}, but the model has only {} tokens, and \
                     none of them stands for unknown text; remove it from the text",
                    self.token(id).unwrap_or_default(),
                    self.vocabulary_size
                ),
            }),
            _ => Ok(id),
        };
        ids.iter().map(plain).collect()
    }

    /// Ids of many texts, in the order of the texts. They are computed in parallel.
    ///
    /// # Errors
    ///
    /// See [`Tokenizer::encode`].
    pub fn encode_batch<S: AsRef<str> + Sync>(&self, texts: &[S]) -> Result<Vec<Vec<u32>>> {
        texts.par_iter().map(|text| self.encode(text.as_ref())).collect()
    }

    /// Decodes ids to text. Special tokens and ids beyond the vocabulary are omitted.
    ///
    /// # Errors
    ///
    /// If the library refuses the ids.
    pub fn decode(&self, ids: &[u32]) -> Result<String> {
        // Special tokens are omitted even if an imported file does not mark them as special.
        let plain: Vec<u32> = ids
            .iter()
            .copied()
            .filter(|&id| !self.special.contains(id) || self.is_unknown(id))
            .collect();
        of_text("decode ids", "", || self.inner.decode(&plain, true))
    }

    /// Decodes many rows of ids to texts, in the order of the rows. They are decoded in parallel.
    ///
    /// # Errors
    ///
    /// See [`Tokenizer::decode`].
    pub fn decode_batch(&self, rows: &[Vec<u32>]) -> Result<Vec<String>> {
        rows.par_iter().map(|ids| self.decode(ids)).collect()
    }

    /// Normalised text, from which tokens are made. The steps of normalisation, such as NFKC and
    /// lowercasing, are those of the tokenizer.
    ///
    /// # Errors
    ///
    /// If the library refuses the text.
    pub fn normalize(&self, text: &str) -> Result<String> {
        let mut normalized = NormalizedString::from(&*self.with_forms(text));
        if let Some(normalizer) = self.inner.get_normalizer() {
            of_text("normalise", text, || normalizer.normalize(&mut normalized))?;
        }
        Ok(normalized.get().to_owned())
    }

    /// Tokens of a text as strings, for people to read.
    ///
    /// # Errors
    ///
    /// See [`Tokenizer::encode`].
    pub fn tokens(&self, text: &str) -> Result<Vec<String>> {
        let ids = self.encode(text)?;
        Ok(ids.into_iter().filter_map(|id| self.token(id)).collect())
    }

    /// SHA-256 of the `tokenizer.json` and of the file of [facts](FolderTokens) next to it, in
    /// hexadecimal.
    pub fn hash(&self) -> &str {
        &self.hash
    }
}
