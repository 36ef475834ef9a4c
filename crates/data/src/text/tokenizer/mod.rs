//! Text to ids and back, by the `tokenizers` library and its `tokenizer.json`.
//!
//! The special tokens have fixed ids, on which batches and decoding rely: `<pad>` 0, `<unk>` 1,
//! `<s>` 2, `</s>` 3. None of them is made from text, even from text that spells one, unless
//! [requested](crate::SpelledSpecial). Imported models have tokenizers with [special tokens of
//! their own](special), which are for tasks other than translation.

pub(crate) mod encoded;
pub(crate) mod pair;
pub(crate) mod segmentation;
pub(crate) mod special;
pub(crate) mod spelled;
pub(crate) mod training;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rayon::prelude::*;
use sha2::{Digest, Sha256};
use tokenizers::{AddedToken, ModelWrapper, NormalizedString, Normalizer, PostProcessorWrapper};

use crate::file_names::hexadecimal;
use crate::files::{read_regular, write_atomically};
use crate::text::panics::{caught, of_text};
use crate::text::tokenizer::segmentation::Layout;
use crate::text::tokenizer::special::{
    FolderTokens, MARKS, Marks, RowMarks, SpecialTokens, unknown_of,
};
use crate::text::tokenizer::spelled::Spelling;
use crate::text::tokenizer::training::train;
use crate::{Error, Result, TokenizerConfig};

/// The id of `<pad>`.
pub const PAD: u32 = 0;
/// The id of `<unk>`.
pub const UNKNOWN: u32 = 1;
/// The id of `<s>`, before the first target token.
pub const START: u32 = 2;
/// The id of `</s>`, after the last token of either side.
pub const END: u32 = 3;
/// The special tokens; the index of each is its id.
pub const SPECIAL_TOKENS: [&str; 4] = ["<pad>", "<unk>", "<s>", "</s>"];

/// Upper bound of the bytes of a tokenizer's file: those of millions of tokens have some hundred
/// MB.
const MOST_BYTES: u64 = 1 << 30;

/// Name of a tokenizer's file, if there is only one.
pub(crate) const FILE: &str = "tokenizer.json";

/// Tokenizer of one language, or of both. Cheap to clone.
#[derive(Clone)]
pub struct Tokenizer {
    pub(super) inner: Arc<tokenizers::Tokenizer>,
    json: Arc<str>,
    hash: Arc<str>,
    vocabulary_size: usize,
    pub(super) special: Arc<SpecialTokens>,
    spelling: Spelling,
    /// Whether it has the special tokens of this project at their ids.
    is_ours: bool,
    folder: Option<Arc<Folder>>,
    /// Tokens before the text of every source of a translation.
    source_prefix: Arc<[u32]>,
    /// Number of encoded texts, shared by clones.
    encodings: Arc<AtomicU64>,
}

/// Facts about the tokens of an imported folder.
#[derive(Debug)]
struct Folder {
    tokens: FolderTokens,
    /// Content of the file with them.
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

/// Error of the library, with the attempted action.
pub(crate) fn fault(action: &'static str) -> impl Fn(tokenizers::Error) -> Error {
    move |error| Error::Tokenizer { action, message: error.to_string() }
}

impl Tokenizer {
    /// Trains a tokenizer of sentences. The same texts give the same tokenizer, on any number of threads.
    ///
    /// # Errors
    ///
    /// If a text cannot be read, if there is none, or if the vocabulary is too small to hold the
    /// special tokens, the bytes and the characters that `character_coverage` requires.
    pub fn train(
        config: &TokenizerConfig,
        nfkc: bool,
        lowercase: bool,
        texts: impl Iterator<Item = Result<String>>,
    ) -> Result<Self> {
        Self::train_for(Layout::Sentences, config, nfkc, lowercase, texts)
    }

    /// Trains a tokenizer like [`Tokenizer::train`], for text of this layout.
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

    /// Adds a token for each of `tags`, wherever text spells it.
    ///
    /// # Errors
    ///
    /// If the library refuses one.
    pub(crate) fn with_tags(self, tags: &[String]) -> Result<Self> {
        if tags.is_empty() {
            return Ok(self);
        }
        let mut inner = (*self.inner).clone();
        // Without normalisation, which is applied to other text.
        let added = tags.iter().map(|tag| AddedToken::from(tag.as_str(), false).normalized(false));
        inner.add_tokens(added.collect::<Vec<_>>()).map_err(fault("add tags"))?;
        self.replaced(&inner)
    }

    /// Adds a token for each of [`MARKS`], which no text spells, unless it has them.
    ///
    /// # Errors
    ///
    /// If the library refuses one.
    pub(crate) fn with_marks(self) -> Result<Self> {
        if self.marks().is_ok() {
            return Ok(self);
        }
        let mut inner = (*self.inner).clone();
        let added = MARKS.map(|mark| AddedToken::from(mark, true));
        inner.add_special_tokens(added).map_err(fault("add marks"))?;
        self.replaced(&inner)
    }

    /// Replaces the library's tokenizer by one with more tokens.
    fn replaced(&self, inner: &tokenizers::Tokenizer) -> Result<Self> {
        let json = inner.to_string(true).map_err(fault("write its file"))?;
        let folder = self.folder.as_ref().map(|folder| folder.json.clone());
        Self::from_json(&json, folder, Path::new(FILE))
    }

    /// The ids of the marks of encoders.
    ///
    /// # Errors
    ///
    /// If the vocabulary lacks one.
    pub(crate) fn marks(&self) -> Result<Marks> {
        self.special.marks().or_else(|| Marks::of(&self.inner, MARKS)).ok_or_else(|| {
            let message = format!(
                "the vocabulary has not all of {}, or what another model has in their place",
                MARKS.join(", ")
            );
            Error::Tokenizer { action: "mark a text", message }
        })
    }

    /// Marks of the rows of an encoder. A model that hides nothing may have no placeholder for a
    /// hidden token.
    ///
    /// # Errors
    ///
    /// If the vocabulary lacks one.
    pub(crate) fn row_marks(&self) -> Result<RowMarks> {
        let (class, separator) = match (self.special.class, self.special.separator) {
            (Some(class), Some(separator)) => (class, separator),
            _ => self.marks().map(|Marks { class, separator, .. }| (class, separator))?,
        };
        Ok(RowMarks { class, separator, between: 1 + usize::from(self.special.doubled_separator) })
    }

    /// Ids of the first token of a row of an encoder, of the token behind each of its texts, and of the
    /// placeholder for a hidden token; `None` for a token that the vocabulary lacks.
    pub fn mark_ids(&self) -> [Option<u32>; 3] {
        match self.marks() {
            Ok(Marks { class, separator, mask }) => [Some(class), Some(separator), Some(mask)],
            Err(_) => [self.special.class, self.special.separator, self.special.mask],
        }
    }

    /// Loads a `tokenizer.json`, and the facts of an imported folder beside it.
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

    /// Makes a tokenizer for an import from the content `json` of the file `path`, which need not
    /// have the special tokens of this project: their roles are [added](Tokenizer::with_folder)
    /// later.
    ///
    /// # Errors
    ///
    /// If it is not a tokenizer.
    pub fn of_others(json: &str, path: &Path) -> Result<Self> {
        let inner = parsed(json, path)?;
        let special = SpecialTokens { unknown: unknown_of(&inner), ..SpecialTokens::default() };
        Self::new(inner, json, special, None)
    }

    /// Adds the facts of an imported folder.
    ///
    /// # Errors
    ///
    /// If they name tokens beyond the vocabulary, or no token that ends a text.
    pub fn with_folder(&self, tokens: &FolderTokens) -> Result<Self> {
        let json = self.json.clone();
        Self::from_json(&json, Some(tokens.to_json()?), Path::new(FILE))
    }

    fn from_json(json: &str, folder: Option<String>, path: &Path) -> Result<Self> {
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

    fn new(
        mut inner: tokenizers::Tokenizer,
        json: &str,
        special: SpecialTokens,
        folder: Option<Folder>,
    ) -> Result<Self> {
        // Text that spells a special token is text. The library does not store this switch.
        inner.set_encode_special_tokens(true);
        // An imported file may configure dropout, which would segment the same text differently
        // each time, in translation too. The recipe has its own, for training alone.
        if let ModelWrapper::BPE(bpe) = inner.get_model()
            && bpe.dropout.is_some()
        {
            let mut bpe = bpe.clone();
            bpe.dropout = None;
            inner.with_model(bpe);
        }
        // Padding and truncation stored in an imported file would break packed batches.
        inner.with_padding(None);
        inner.with_truncation(None).map_err(fault("switch truncation off"))?;
        let mut hash = Sha256::new();
        hash.update(json);
        if let Some(folder) = &folder {
            hash.update("\n");
            hash.update(&folder.json);
        }
        // An id may exceed the number of tokens if an imported file has gaps, and the rows of a
        // model may exceed all ids.
        let ids = inner.get_vocab(true).values().max().map_or(0, |id| *id as usize + 1);
        let rows = folder.as_ref().map_or(0, |folder| folder.tokens.vocabulary_size);
        let without_row = folder.as_ref().map_or(0, |folder| folder.tokens.without_row);
        let ids = ids.saturating_sub(without_row);
        Ok(Self {
            vocabulary_size: ids.max(rows),
            is_ours: (0..)
                .zip(SPECIAL_TOKENS)
                .all(|(id, token)| inner.token_to_id(token) == Some(id)),
            inner: Arc::new(inner),
            json: json.into(),
            hash: hexadecimal(&hash.finalize()).into(),
            special: Arc::new(special),
            spelling: Spelling::default(),
            folder: folder.map(Arc::new),
            source_prefix: [].into(),
            encodings: Arc::default(),
        })
    }

    /// Writes the `tokenizer.json`, exactly as it was loaded or trained, and beside it the facts of
    /// an imported folder.
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

    /// Writes the `tokenizer.json` alone, exactly as it was loaded or trained.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn save_file(&self, path: &Path) -> Result<()> {
        write_atomically(path, self.json.as_bytes())
    }

    /// Content of the `tokenizer.json` with the post-processor `json`, which puts special tokens
    /// around texts; `None` if it has one already.
    ///
    /// # Errors
    ///
    /// If the library refuses it.
    pub fn with_post_processor(&self, json: &serde_json::Value) -> Result<Option<String>> {
        if self.inner.get_post_processor().is_some() {
            return Ok(None);
        }
        let fault = fault("put special tokens around texts");
        let processor: PostProcessorWrapper =
            serde_json::from_value(json.clone()).map_err(|error| fault(error.into()))?;
        let mut inner = (*self.inner).clone();
        inner.with_post_processor(Some(processor));
        inner.to_string(true).map(Some).map_err(fault)
    }

    /// The content of the `tokenizer.json`.
    pub(crate) fn json(&self) -> &str {
        &self.json
    }

    /// Facts about the imported folder.
    pub fn folder(&self) -> Option<&FolderTokens> {
        self.folder.as_deref().map(|folder| &folder.tokens)
    }

    /// Ids of a text, without special tokens, except those that it spells if [the
    /// rule](crate::SpelledSpecial) reads them.
    ///
    /// # Errors
    ///
    /// If the library or the rule refuses the text.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        let reader = self.reader_of(text)?;
        self.encodings.fetch_add(1, Ordering::Relaxed);
        let encoding = of_text("encode", text, || reader.encode_fast(text, false))?;
        Ok(self.plain(encoding.get_ids()))
    }

    /// Ids that the library made of text.
    fn plain(&self, ids: &[u32]) -> Vec<u32> {
        // In an imported model the special tokens may be pieces like any other, which text may
        // spell.
        let is_other = |id: u32| {
            id as usize >= self.vocabulary_size
                || (self.special.contains(id) && !self.reads_special())
        };
        let plain = |&id: &u32| match is_other(id) {
            true => self.special.unknown.unwrap_or(id),
            false => id,
        };
        ids.iter().map(plain).collect()
    }

    /// Ids of many texts, computed in parallel, in the given order.
    ///
    /// # Errors
    ///
    /// See [`Tokenizer::encode`].
    pub fn encode_batch<S: AsRef<str> + Sync>(&self, texts: &[S]) -> Result<Vec<Vec<u32>>> {
        texts.par_iter().map(|text| self.encode(text.as_ref())).collect()
    }

    /// Decodes ids to text; special tokens are left out, and ids beyond the vocabulary ignored.
    ///
    /// # Errors
    ///
    /// If the library refuses the ids.
    pub fn decode(&self, ids: &[u32]) -> Result<String> {
        // Without special tokens, even those that an imported file does not mark as special.
        let plain: Vec<u32> = ids
            .iter()
            .copied()
            .filter(|&id| !self.special.contains(id) || self.is_unknown(id))
            .collect();
        of_text("decode ids", "", || self.inner.decode(&plain, true))
    }

    /// Decodes many rows of ids to texts, in parallel, in the given order.
    ///
    /// # Errors
    ///
    /// See [`Tokenizer::decode`].
    pub fn decode_batch(&self, rows: &[Vec<u32>]) -> Result<Vec<String>> {
        rows.par_iter().map(|ids| self.decode(ids)).collect()
    }

    /// Normalised text as the model's input: after NFKC and lowercasing, if the tokenizer has them.
    ///
    /// # Errors
    ///
    /// If the library refuses the text.
    pub fn normalize(&self, text: &str) -> Result<String> {
        let mut normalized = NormalizedString::from(text);
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

    /// Token of an id; `None` beyond the vocabulary.
    pub fn token(&self, id: u32) -> Option<String> {
        self.inner.id_to_token(id)
    }

    /// Whether each id is one of the 256 tokens that spell a byte.
    pub(crate) fn byte_ids(&self) -> Vec<bool> {
        let mut is_byte = vec![false; self.vocabulary_size];
        for byte in 0..=u8::MAX {
            if let Some(id) = self.inner.token_to_id(&byte_token(byte)) {
                is_byte[id as usize] = true;
            }
        }
        is_byte
    }

    /// Id of a token.
    pub fn id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// Special tokens, by their roles.
    pub fn special_tokens(&self) -> &SpecialTokens {
        &self.special
    }

    /// Id of the token that ends a document: `</s>`, or its counterpart in an imported model.
    pub fn end(&self) -> u32 {
        // There is always one: in our tokenizers, implied by a file, or required of a folder.
        self.special.ends.first().copied().unwrap_or(END)
    }

    /// Id of the first input of a decoder of translations: `<s>`, or its counterpart in an imported
    /// model.
    pub fn decoder_start(&self) -> u32 {
        self.special.start.unwrap_or(START)
    }

    /// Adds the tokens of `text` before every source of a translation, such as the name of a task.
    /// They are not part of the tokenizer's identity.
    ///
    /// # Errors
    ///
    /// See [`Tokenizer::encode`].
    pub(super) fn with_source_prefix(&self, text: &str) -> Result<Self> {
        // A blank at the end belongs to the first token of the text that follows.
        let source_prefix = match text.trim_end() {
            "" => [].into(),
            text => self.encode(text)?.into(),
        };
        Ok(Self { source_prefix, ..self.clone() })
    }

    /// Number of tokens before the text in the row of a source.
    pub fn tokens_before_source(&self) -> usize {
        self.special.before.len() + self.source_prefix.len()
    }

    /// Source row of a translation encoder for the ids of a text: the tokens before every text,
    /// those of the text, the end, and the tokens after it.
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
        self.special.before.len() + 1
    }

    /// Row of answers of a translation decoder for the ids of a text: the tokens before every text,
    /// those of the text, and the end.
    pub fn answer_row(&self, ids: impl IntoIterator<Item = u32>) -> Vec<u32> {
        self.special.before.iter().copied().chain(ids).chain([self.end()]).collect()
    }

    /// Input row of a translation decoder for the ids of a text. Its predictions are the [row of
    /// answers](Self::answer_row).
    pub fn target_row(&self, ids: impl IntoIterator<Item = u32>) -> Vec<u32> {
        let before = self.special.before.iter().copied();
        [self.decoder_start()].into_iter().chain(before).chain(ids).collect()
    }

    /// Ids without a token: rows of a model beyond its vocabulary, or gaps in it.
    pub fn ids_without_token(&self) -> Vec<u32> {
        let all = 0..self.vocabulary_size as u32;
        all.filter(|&id| self.inner.id_to_token(id).is_none()).collect()
    }

    /// Whether an id is a special token, which stands for no text.
    pub fn is_special(&self, id: u32) -> bool {
        let is_mark = |marks: Marks| [marks.class, marks.separator, marks.mask].contains(&id);
        self.special.contains(id) || self.marks().is_ok_and(is_mark)
    }

    /// Prefix of pieces that continue a word; `None` if the vocabulary marks the beginnings of
    /// words instead.
    pub(crate) fn continuing_prefix(&self) -> Option<&str> {
        match self.inner.get_model() {
            ModelWrapper::WordPiece(model) => Some(&model.continuing_subword_prefix),
            _ => None,
        }
    }

    /// Whether the vocabulary has the special tokens of this project at their ids.
    pub fn has_special_tokens(&self) -> bool {
        self.is_ours
    }

    /// Whether an id represents text that the vocabulary cannot spell.
    pub fn is_unknown(&self, id: u32) -> bool {
        self.special.unknown == Some(id)
    }

    /// Returns this tokenizer, read from the file `path`, for a task that needs every special
    /// token.
    ///
    /// # Errors
    ///
    /// [`Error::SpecialToken`] if it lacks one.
    pub(crate) fn with_special_tokens(self, path: &Path) -> Result<Self> {
        if !self.is_ours {
            require_special_tokens(&self.inner, path)?;
        }
        Ok(self)
    }

    /// Number of ids, including special tokens and ids [without a token](Self::ids_without_token):
    /// the rows of an embedding matrix.
    pub fn vocabulary_size(&self) -> usize {
        self.vocabulary_size
    }

    /// SHA-256 of the `tokenizer.json` and of the facts beside it, in hexadecimal.
    pub fn hash(&self) -> &str {
        &self.hash
    }
}

/// Reads a JSON file; `None` if it does not exist.
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
    // The library panics if its decoder's part is not JSON, and perhaps elsewhere, instead of
    // refusing the file.
    serde_json::from_str::<serde::de::IgnoredAny>(json)
        .map_err(|error| malformed(error.to_string()))?;
    caught(|| json.parse())
        .map_err(|said| malformed(format!("the library gave up on it: {said}")))?
        .map_err(|error: tokenizers::Error| malformed(error.to_string()))
}

/// Refuses a tokenizer without the special tokens at their ids.
fn require_special_tokens(inner: &tokenizers::Tokenizer, path: &Path) -> Result<()> {
    for (expected, token) in (0_u32..).zip(SPECIAL_TOKENS) {
        let found = inner.token_to_id(token);
        if found != Some(expected) {
            return Err(Error::SpecialToken {
                path: path.to_owned(),
                token,
                expected,
                found: found.map_or("is absent".to_owned(), |id| format!("has id {id}")),
            });
        }
    }
    Ok(())
}

/// Token that represents a byte.
pub(crate) fn byte_token(byte: u8) -> String {
    format!("<0x{byte:02X}>")
}

/// Whether a token of a vocabulary spells text: special tokens and bytes do not.
pub(crate) fn is_text(token: &str) -> bool {
    let digits = token.strip_prefix("<0x").and_then(|rest| rest.strip_suffix('>'));
    let is_byte = digits
        .and_then(|digits| u8::from_str_radix(digits, 16).ok())
        .is_some_and(|byte| byte_token(byte) == token);
    !is_byte && !SPECIAL_TOKENS.contains(&token)
}
