//! The tokenizers of a run: one, or one for each side of pairs.

use std::path::Path;

use sha2::{Digest, Sha256};

use crate::text::tokenizer::{FILE, hexadecimal};
use crate::{Error, Result, Tokenizer};

const SOURCE_FILE: &str = "tokenizer.source.json";
const TARGET_FILE: &str = "tokenizer.target.json";

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

    /// Whether a folder holds tokenizers.
    pub fn exists(directory: &Path) -> bool {
        // What is there and is no file is for `load` to name.
        directory.join(FILE).exists()
            || (directory.join(SOURCE_FILE).exists() && directory.join(TARGET_FILE).exists())
    }

    /// Loads `tokenizer.json`, or `tokenizer.source.json` and `tokenizer.target.json`.
    ///
    /// # Errors
    ///
    /// As for [`Tokenizer::load`].
    pub fn load(directory: &Path) -> Result<Self> {
        let source = directory.join(SOURCE_FILE);
        if source.exists() {
            let target = directory.join(TARGET_FILE);
            return Ok(Self::separate(Tokenizer::load(&source)?, Tokenizer::load(&target)?));
        }
        Tokenizer::load(&directory.join(FILE)).map(Self::joint)
    }

    /// Writes the files that [`TokenizerPair::load`] reads; the folder is made where needed.
    ///
    /// # Errors
    ///
    /// If a file cannot be written.
    pub fn save(&self, directory: &Path) -> Result<()> {
        std::fs::create_dir_all(directory).map_err(|source| Error::io(directory, source))?;
        match &self.target {
            None => self.source.save(&directory.join(FILE)),
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
