//! Tokenizers of a run (the folder that a training writes). There is one tokenizer for all text,
//! one for each side of sentence pairs, or none if the task has no text.

use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::file_names::hexadecimal;
use crate::text::tokenizer::FILE;
use crate::{DataConfig, Direction, Error, LanguageTag, Result, Tokenizer};

const SOURCE_FILE: &str = "tokenizer.source.json";
const TARGET_FILE: &str = "tokenizer.target.json";

/// Tokenizers of both sides, which may be a single tokenizer.
#[derive(Debug, Clone)]
pub struct TokenizerPair {
    /// `None` for a task without text.
    source: Option<Tokenizer>,
    /// `None` if both sides share the tokenizer in `source`, or for a task without text.
    target: Option<Tokenizer>,
}

/// Hash that stands for a missing tokenizer.
const NONE: &str = "none";

impl TokenizerPair {
    /// No tokenizers, for a task without text.
    pub fn none() -> Self {
        Self { source: None, target: None }
    }

    /// One tokenizer, and so one vocabulary, for both sides.
    pub fn joint(tokenizer: Tokenizer) -> Self {
        Self { source: Some(tokenizer), target: None }
    }

    /// A separate tokenizer for each side.
    pub fn separate(source: Tokenizer, target: Tokenizer) -> Self {
        Self { source: Some(source), target: Some(target) }
    }

    /// Puts the tokens of `text` before every source. An empty text changes nothing.
    ///
    /// # Errors
    ///
    /// See [`Tokenizer::encode`].
    pub fn with_source_prefix(self, text: &str) -> Result<Self> {
        let source = self.source.map(|source| source.with_source_prefix(text)).transpose()?;
        Ok(Self { source, ..self })
    }

    /// Makes tokenizers whose rows contain the token of the target language of `direction`. If the
    /// configuration has only one direction, returns a copy of these tokenizers.
    ///
    /// # Errors
    ///
    /// If the vocabulary lacks the language's token.
    pub fn toward(&self, config: &DataConfig, direction: &Direction) -> Result<Self> {
        if !config.is_multilingual() {
            return Ok(self.clone());
        }
        let tag = config.languages.tag;
        let marked = |tokenizer: &Tokenizer| tokenizer.with_target_language(&direction.to, tag);
        let (source, target) = (self.source.as_ref(), self.target.as_ref());
        Ok(match (tag, target) {
            // With two vocabularies, only the vocabulary of one side has the tokens of languages.
            (LanguageTag::Source, Some(_)) | (_, None) => {
                Self { source: source.map(marked).transpose()?, target: self.target.clone() }
            }
            (LanguageTag::Target, Some(target)) => {
                Self { source: self.source.clone(), target: Some(marked(target)?) }
            }
        })
    }

    /// True if rows contain the token of a target language. They contain it if [`Self::toward`]
    /// made these tokenizers in a run with several directions.
    pub fn names_language(&self) -> bool {
        [&self.source, &self.target].into_iter().flatten().any(Tokenizer::names_language)
    }

    /// Applies `change` to both tokenizers.
    pub(super) fn map(&self, change: impl Fn(&Tokenizer) -> Tokenizer) -> Self {
        Self {
            source: self.source.as_ref().map(&change),
            target: self.target.as_ref().map(&change),
        }
    }

    /// True if a folder contains the files of tokenizers.
    pub fn exists(directory: &Path) -> bool {
        // A path that exists but is not a file is an error for `load` to report.
        directory.join(FILE).exists()
            || (directory.join(SOURCE_FILE).exists() && directory.join(TARGET_FILE).exists())
    }

    /// Loads `tokenizer.json`, or `tokenizer.source.json` and `tokenizer.target.json`.
    ///
    /// # Errors
    ///
    /// See [`Tokenizer::load`].
    pub fn load(directory: &Path) -> Result<Self> {
        let (source, target) = Self::files(directory);
        let source = Tokenizer::load(&source)?;
        let Some(target) = target else { return Ok(Self::joint(source)) };
        let target = Tokenizer::load_beside(&source, &target)?;
        Ok(Self::separate(source, target))
    }

    /// Files that [`TokenizerPair::load`] reads in `directory`. If both sides share a tokenizer,
    /// returns its file and `None`. Otherwise returns the file for the source and the file for the
    /// target.
    #[must_use]
    pub fn files(directory: &Path) -> (PathBuf, Option<PathBuf>) {
        let source = directory.join(SOURCE_FILE);
        match source.exists() {
            true => (source, Some(directory.join(TARGET_FILE))),
            false => (directory.join(FILE), None),
        }
    }

    /// Writes the files that [`TokenizerPair::load`] reads. Makes the folder if it does not exist.
    ///
    /// # Errors
    ///
    /// If a file cannot be written.
    pub fn save(&self, directory: &Path) -> Result<()> {
        std::fs::create_dir_all(directory).map_err(|source| Error::io(directory, source))?;
        match (&self.source, &self.target) {
            (None, _) => Ok(()),
            (Some(both), None) => both.save(&directory.join(FILE)),
            (Some(source), Some(target)) => {
                source.save(&directory.join(SOURCE_FILE))?;
                target.save(&directory.join(TARGET_FILE))
            }
        }
    }

    /// The tokenizer of the source side.
    ///
    /// # Panics
    ///
    /// If the task reads no text.
    pub fn source(&self) -> &Tokenizer {
        // Only tasks that read text call this, so no content of files can cause this panic.
        self.source.as_ref().expect("a task that reads text")
    }

    /// The tokenizer of the target side.
    ///
    /// # Panics
    ///
    /// If the task reads no text.
    pub fn target(&self) -> &Tokenizer {
        self.target.as_ref().unwrap_or_else(|| self.source())
    }

    /// Sizes of the vocabularies of source and target; both are 0 for a task without text.
    pub fn vocabulary_sizes(&self) -> (usize, usize) {
        match &self.source {
            None => (0, 0),
            Some(source) => (source.vocabulary_size(), self.target().vocabulary_size()),
        }
    }

    /// True if both sides share one vocabulary.
    pub fn is_joint(&self) -> bool {
        self.target.is_none()
    }

    /// Hash that identifies the tokenizers: the hash of a single tokenizer, or a hash of the hashes
    /// of both tokenizers.
    pub fn hash(&self) -> String {
        match (&self.source, &self.target) {
            (None, _) => NONE.to_owned(),
            (Some(both), None) => both.hash().to_owned(),
            (Some(source), Some(target)) => {
                let both = format!("{}\n{}", source.hash(), target.hash());
                hexadecimal(&Sha256::digest(both.as_bytes()))
            }
        }
    }
}
