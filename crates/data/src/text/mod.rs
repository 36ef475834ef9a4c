//! Text and its conversion to ids for any task: lines of files, fingerprints, tokenizers and their
//! subwords, and the cache of tokenised text.

pub(crate) mod archive;
pub(crate) mod cache;
pub(crate) mod compression;
pub(crate) mod encoding;
pub(crate) mod fingerprint;
pub(crate) mod hub;
pub(crate) mod lines;
pub(crate) mod links;
pub(crate) mod panics;
pub(crate) mod shards;
pub(crate) mod subwords;
pub(crate) mod tokenizer;
pub(crate) mod words;
mod zstandard;
