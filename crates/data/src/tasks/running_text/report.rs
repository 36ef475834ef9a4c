//! What a split of running text holds.

use serde::{Deserialize, Serialize};

use crate::BatchingReport;

/// The data report of one split of running text.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TextReport {
    /// The split.
    pub split: String,
    /// Documents, those included of which a part is here.
    pub documents: u64,
    /// Words, as white space divides them.
    pub words: u64,
    /// Characters.
    pub characters: u64,
    /// Bytes of them in UTF-8.
    pub bytes: u64,
    /// Tokens, the `</s>` between documents included.
    pub tokens: u64,
    /// Those that are `<unk>`.
    pub unknown: u64,
    /// What batches of blocks are like. There is one stream, the target's.
    pub batching: BatchingReport,
    /// SHA-256 of the files as they lie on disk.
    pub text_hash: String,
    /// The hash of the tokenizer.
    pub tokenizer_hash: String,
}
