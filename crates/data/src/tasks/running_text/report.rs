//! Report on the content of a split of running text.

use serde::{Deserialize, Serialize};

use crate::tasks::running_text::reader::Passage;
use crate::{BatchingReport, Tokenizer};

/// Data report of one split of running text.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TextReport {
    /// Name of the split.
    pub split: String,
    /// Number of documents, including documents that are only partly in the split.
    pub documents: u64,
    /// Number of words. White space separates words.
    pub words: u64,
    /// Number of characters.
    pub characters: u64,
    /// Number of bytes of these characters in UTF-8.
    pub bytes: u64,
    /// Number of tokens, including the `</s>` between documents.
    pub tokens: u64,
    /// Number of `<unk>` tokens.
    pub unknown: u64,
    /// Sizes of batches of blocks. A language model reads one text, not a source and a target; its
    /// tokens are counted in the fields for the target.
    pub batching: BatchingReport,
    /// SHA-256 of the files, decompressed.
    pub text_hash: String,
    /// The hash of the tokenizer.
    pub tokenizer_hash: String,
}

impl TextReport {
    /// Counts a passage and the ids of its text.
    pub(crate) fn count(&mut self, passage: &Passage, ids: &[u32], tokenizer: &Tokenizer) {
        self.documents += u64::from(passage.begins_document || self.documents == 0);
        self.count_text(&passage.text);
        self.tokens += ids.len() as u64;
        self.unknown += ids.iter().filter(|&&id| tokenizer.is_unknown(id)).count() as u64;
    }
    /// Counts words, characters and bytes of a text.
    pub(crate) fn count_text(&mut self, text: &str) {
        self.words += text.split_whitespace().count() as u64;
        self.characters += text.chars().count() as u64;
        self.bytes += text.len() as u64;
    }
}
