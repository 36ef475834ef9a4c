//! Text to ids and back, by the `tokenizers` library and its `tokenizer.json`.
//!
//! The special tokens have fixed ids, on which batches and decoding rely: `<pad>` 0, `<unk>` 1,
//! `<s>` 2, `</s>` 3. None of them is ever made from text, even from text that spells one.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use rayon::prelude::*;
use sha2::{Digest, Sha256};
use tokenizers::{ModelWrapper, NormalizedString, Normalizer};

use crate::text::cache::write_atomically;
use crate::text::tokenizer_training::train;
use crate::{Cleaner, DataConfig, Error, PairReader, Result, TokenizerConfig};

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

const JOINT_FILE: &str = "tokenizer.json";
const SOURCE_FILE: &str = "tokenizer.source.json";
const TARGET_FILE: &str = "tokenizer.target.json";

/// A tokenizer of one language, or of both. Cheap to clone.
#[derive(Clone)]
pub struct Tokenizer {
    inner: Arc<tokenizers::Tokenizer>,
    json: Arc<str>,
    hash: Arc<str>,
    vocabulary_size: usize,
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

/// A fault of the library, with what was being done.
pub(crate) fn fault(action: &'static str) -> impl Fn(tokenizers::Error) -> Error {
    move |error| Error::Tokenizer { action, message: error.to_string() }
}

impl Tokenizer {
    /// Trains a tokenizer. The same texts give the same tokenizer, on any number of threads.
    ///
    /// # Errors
    ///
    /// If a text cannot be read, if there is none, or if the vocabulary is too small to hold the
    /// special tokens, the bytes and the characters that `character_coverage` asks for.
    pub fn train(
        config: &TokenizerConfig,
        nfkc: bool,
        lowercase: bool,
        texts: impl Iterator<Item = Result<String>>,
    ) -> Result<Self> {
        let trained = train(config, nfkc, lowercase, texts)?;
        let json = trained.to_string(true).map_err(fault("write its file"))?;
        Self::from_json(&json, Path::new(JOINT_FILE))
    }

    /// Loads a `tokenizer.json`.
    ///
    /// # Errors
    ///
    /// If the file is missing or not a tokenizer, or lacks a special token at its id.
    pub fn load(path: &Path) -> Result<Self> {
        let bytes = std::fs::read(path).map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound => Error::Missing {
                path: path.to_owned(),
                tried: String::new(),
                hint: "name a tokenizer.json, or leave data.tokenizer.path out to train one"
                    .to_owned(),
            },
            _ => Error::io(path, source),
        })?;
        let json = String::from_utf8(bytes).map_err(|error| Error::Malformed {
            path: path.to_owned(),
            message: format!("not a tokenizer.json ({error})"),
        })?;
        Self::from_json(&json, path)
    }

    fn from_json(json: &str, path: &Path) -> Result<Self> {
        let malformed = |reason: String| Error::Malformed {
            path: path.to_owned(),
            message: format!("not a tokenizer.json of the tokenizers library ({reason})"),
        };
        // The library panics where its decoder's part is not JSON, and perhaps elsewhere, instead
        // of refusing the file.
        serde_json::from_str::<serde::de::IgnoredAny>(json)
            .map_err(|error| malformed(error.to_string()))?;
        let mut inner: tokenizers::Tokenizer = std::panic::catch_unwind(|| json.parse())
            .map_err(|_| malformed("the library gave up on it".to_owned()))?
            .map_err(|error: tokenizers::Error| malformed(error.to_string()))?;
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
        // Text that spells a special token is text. The library does not store this switch.
        inner.set_encode_special_tokens(true);
        // A foreign file's dropout would cut a text otherwise each time, also to translate it; the
        // recipe has its own, for training.
        if let ModelWrapper::BPE(bpe) = inner.get_model()
            && bpe.dropout.is_some()
        {
            let mut bpe = bpe.clone();
            bpe.dropout = None;
            inner.with_model(bpe);
        }
        // Padding and truncation stored in a foreign file would break packed batches.
        inner.with_padding(None);
        inner.with_truncation(None).map_err(fault("switch truncation off"))?;
        Ok(Self {
            // An id may exceed the number of tokens where a foreign file has gaps.
            vocabulary_size: inner.get_vocab(true).values().max().map_or(0, |id| *id as usize + 1),
            inner: Arc::new(inner),
            json: json.into(),
            hash: hexadecimal(&Sha256::digest(json.as_bytes())).into(),
        })
    }

    /// Writes the `tokenizer.json`, exactly as it was loaded or trained.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn save(&self, path: &Path) -> Result<()> {
        write_atomically(path, self.json.as_bytes())
    }

    /// The content of the `tokenizer.json`.
    pub(crate) fn json(&self) -> &str {
        &self.json
    }

    /// The ids of a text, without special tokens.
    ///
    /// # Errors
    ///
    /// If the library refuses the text.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        let encoding = self.inner.encode_fast(text, false).map_err(fault("encode a text"))?;
        // In a foreign Unigram model the special tokens are pieces like any other, which text may
        // spell.
        let plain = |&id: &u32| if (id as usize) < SPECIAL_TOKENS.len() { UNKNOWN } else { id };
        Ok(encoding.get_ids().iter().map(plain).collect())
    }

    /// The ids of many texts, in parallel, in the order given.
    ///
    /// # Errors
    ///
    /// As for [`Tokenizer::encode`].
    pub fn encode_batch<S: AsRef<str> + Sync>(&self, texts: &[S]) -> Result<Vec<Vec<u32>>> {
        texts.par_iter().map(|text| self.encode(text.as_ref())).collect()
    }

    /// The text of ids; special tokens are left out, and ids beyond the vocabulary ignored.
    ///
    /// # Errors
    ///
    /// If the library refuses the ids.
    pub fn decode(&self, ids: &[u32]) -> Result<String> {
        // Also those that a foreign file does not mark as special.
        let plain: Vec<u32> = ids
            .iter()
            .copied()
            .filter(|id| *id as usize >= SPECIAL_TOKENS.len() || *id == UNKNOWN)
            .collect();
        self.inner.decode(&plain, true).map_err(fault("decode ids"))
    }

    /// The texts of many rows of ids, in parallel, in the order given.
    ///
    /// # Errors
    ///
    /// As for [`Tokenizer::decode`].
    pub fn decode_batch(&self, rows: &[Vec<u32>]) -> Result<Vec<String>> {
        rows.par_iter().map(|ids| self.decode(ids)).collect()
    }

    /// The text as the model is given it: after NFKC and lowercasing, where the tokenizer has them.
    ///
    /// # Errors
    ///
    /// If the library refuses the text.
    pub fn normalize(&self, text: &str) -> Result<String> {
        let mut normalized = NormalizedString::from(text);
        if let Some(normalizer) = self.inner.get_normalizer() {
            normalizer.normalize(&mut normalized).map_err(fault("normalise a text"))?;
        }
        Ok(normalized.get().to_owned())
    }

    /// The tokens of a text as strings, for people to read.
    ///
    /// # Errors
    ///
    /// As for [`Tokenizer::encode`].
    pub fn tokens(&self, text: &str) -> Result<Vec<String>> {
        let ids = self.encode(text)?;
        Ok(ids.into_iter().filter_map(|id| self.token(id)).collect())
    }

    /// The token of an id.
    pub fn token(&self, id: u32) -> Option<String> {
        self.inner.id_to_token(id)
    }

    /// Whether an id is one of the 256 tokens that spell a byte.
    pub(crate) fn byte_ids(&self) -> Vec<bool> {
        let mut is_byte = vec![false; self.vocabulary_size];
        for byte in 0..=u8::MAX {
            if let Some(id) = self.inner.token_to_id(&byte_token(byte)) {
                is_byte[id as usize] = true;
            }
        }
        is_byte
    }

    /// The number of ids, special tokens included: the rows of an embedding matrix.
    pub fn vocabulary_size(&self) -> usize {
        self.vocabulary_size
    }

    /// The SHA-256 of the `tokenizer.json`, in hexadecimal.
    pub fn hash(&self) -> &str {
        &self.hash
    }
}

/// The token that stands for a byte.
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

/// Bytes as lowercase hexadecimal digits.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The tokenizers of both sides, which may be one and the same.
#[derive(Debug, Clone)]
pub struct TokenizerPair {
    source: Tokenizer,
    target: Option<Tokenizer>,
}

impl TokenizerPair {
    /// One tokenizer, and so one vocabulary, for both sides.
    pub fn joint(tokenizer: Tokenizer) -> Self {
        Self { source: tokenizer, target: None }
    }

    /// A tokenizer for each side.
    pub fn separate(source: Tokenizer, target: Tokenizer) -> Self {
        Self { source, target: Some(target) }
    }

    /// Trains on the training split, or loads the files that the configuration names.
    ///
    /// # Errors
    ///
    /// As for [`Tokenizer::train`], [`Tokenizer::load`] and [`PairReader`].
    pub fn train(config: &DataConfig) -> Result<Self> {
        let settings = &config.tokenizer;
        match (&settings.path, &settings.target_path) {
            (Some(source), Some(target)) => {
                Ok(Self::separate(Tokenizer::load(source)?, Tokenizer::load(target)?))
            }
            (Some(path), None) => Ok(Self::joint(Tokenizer::load(path)?)),
            (None, _) if settings.joint => {
                let texts = training_pairs(config)?.flat_map(|pair| match pair {
                    Ok((source, target)) => vec![Ok(source), Ok(target)],
                    Err(error) => vec![Err(error)],
                });
                Tokenizer::train(settings, config.nfkc, config.lowercase, texts).map(Self::joint)
            }
            (None, _) => {
                let train = |texts: &mut dyn Iterator<Item = Result<String>>| {
                    Tokenizer::train(settings, config.nfkc, config.lowercase, texts)
                };
                // The corpus is read once for each side rather than held in memory.
                Ok(Self::separate(
                    train(&mut training_pairs(config)?.map(|pair| Ok(pair?.0)))?,
                    train(&mut training_pairs(config)?.map(|pair| Ok(pair?.1)))?,
                ))
            }
        }
    }

    /// The tokenizers of a run: those it already has, or else new ones, which are saved there.
    ///
    /// # Errors
    ///
    /// As for [`TokenizerPair::train`] and [`TokenizerPair::save`].
    pub fn obtain(config: &DataConfig, directory: &Path) -> Result<Self> {
        if Self::exists(directory) {
            return Self::load(directory);
        }
        let tokenizers = Self::train(config)?;
        tokenizers.save(directory)?;
        Ok(tokenizers)
    }

    /// Whether a folder holds tokenizers.
    pub fn exists(directory: &Path) -> bool {
        directory.join(JOINT_FILE).is_file()
            || (directory.join(SOURCE_FILE).is_file() && directory.join(TARGET_FILE).is_file())
    }

    /// Loads `tokenizer.json`, or `tokenizer.source.json` and `tokenizer.target.json`.
    ///
    /// # Errors
    ///
    /// As for [`Tokenizer::load`].
    pub fn load(directory: &Path) -> Result<Self> {
        let source = directory.join(SOURCE_FILE);
        if source.is_file() {
            let target = directory.join(TARGET_FILE);
            return Ok(Self::separate(Tokenizer::load(&source)?, Tokenizer::load(&target)?));
        }
        Tokenizer::load(&directory.join(JOINT_FILE)).map(Self::joint)
    }

    /// Writes the files that [`TokenizerPair::load`] reads; the folder is made where needed.
    ///
    /// # Errors
    ///
    /// If a file cannot be written.
    pub fn save(&self, directory: &Path) -> Result<()> {
        std::fs::create_dir_all(directory).map_err(|source| Error::io(directory, source))?;
        match &self.target {
            None => self.source.save(&directory.join(JOINT_FILE)),
            Some(target) => {
                self.source.save(&directory.join(SOURCE_FILE))?;
                target.save(&directory.join(TARGET_FILE))
            }
        }
    }

    /// The tokenizer of the source side.
    pub fn source(&self) -> &Tokenizer {
        &self.source
    }

    /// The tokenizer of the target side.
    pub fn target(&self) -> &Tokenizer {
        self.target.as_ref().unwrap_or(&self.source)
    }

    /// Whether both sides share one vocabulary.
    pub fn is_joint(&self) -> bool {
        self.target.is_none()
    }

    /// What tells these tokenizers from others: the hash of the one, or of both hashes.
    pub fn hash(&self) -> String {
        match &self.target {
            None => self.source.hash().to_owned(),
            Some(target) => {
                let both = format!("{}\n{}", self.source.hash(), target.hash());
                hexadecimal(&Sha256::digest(both.as_bytes()))
            }
        }
    }
}

/// The texts of the training pairs that cleaning keeps before tokens are known.
fn training_pairs(
    config: &DataConfig,
) -> Result<impl Iterator<Item = Result<(String, String)>> + use<>> {
    let cleaner = Cleaner::new(&config.cleaning);
    let limit = usize::try_from(config.tokenizer.max_pairs).unwrap_or(usize::MAX);
    Ok(PairReader::open(config, &config.train)?
        .filter(move |pair| match pair {
            Ok(pair) => cleaner.check_text(&pair.source, &pair.target).is_ok(),
            Err(_) => true,
        })
        .take(limit)
        .map(|pair| pair.map(|pair| (pair.source, pair.target))))
}
