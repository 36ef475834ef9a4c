//! Source sentences of a validation set that was drawn from the training text.

use std::collections::HashSet;

use sha2::{Digest, Sha256};

use crate::{DataConfig, LineReader, Result};

/// 128-bit hash of a sentence.
pub(crate) fn fingerprint(sentence: &str) -> u128 {
    let digest = Sha256::digest(sentence.as_bytes());
    let mut bits = [0; 16];
    bits.copy_from_slice(&digest[..16]);
    u128::from_le_bytes(bits)
}

/// Hashes of the source sentences that are excluded from training.
///
/// # Errors
///
/// If a file of held-out sentences cannot be read.
pub(crate) fn held_out_sentences(config: &DataConfig) -> Result<HashSet<u128>> {
    let mut sentences = HashSet::new();
    if config.holds_out() {
        for source in config.validation.iter().flat_map(|corpus| corpus.source.iter()) {
            for line in LineReader::open(source)? {
                sentences.insert(fingerprint(&line?));
            }
        }
    }
    Ok(sentences)
}
