//! Subword regularisation: segments training text differently in each epoch.
//!
//! A model that sees several segmentations of a word learns the meaning of its parts, and is more
//! robust to rare and misspelt words. BPE skips merges at random ([`bpe_dropout`]); a unigram model
//! samples from its own distribution over segmentations ([`unigram_sampling`]).
//!
//! **Decision.** Sentences are segmented again from the ids of the tokenised cache, which spell the
//! text, by means of the merges or scores in the `tokenizer.json`. So the cache is unchanged, and
//! text is normalised and cleaned only once. The dropout of the library is not used, because it
//! takes random numbers from a generator of the thread, so a resumed run would see other
//! segmentations. Here a random number depends only on the seed, the epoch, the line, the side and
//! the index of the number.

mod bpe_dropout;
mod unigram_sampling;

use crate::draws::{Draws, Epoch};
use crate::text::subwords::bpe_dropout::Merges;
use crate::text::subwords::unigram_sampling::Pieces;
use crate::{Error, Result, Tokenizer, TokenizerConfig};

/// Purpose number of the random draws for segmentations (see [`crate::Draws::new`]).
const PURPOSE: u64 = 4;

/// Marks before the first character of a word, in SentencePiece and in byte-level tokenizers.
const WORD_MARKS: [char; 2] = ['▁', 'Ġ'];

/// Sequence of random numbers in `[0, 1)`.
pub(crate) struct Stream {
    draws: Draws,
    next: u64,
}

impl Stream {
    /// Makes the random numbers for one side of a line.
    pub(crate) fn new(epoch: Epoch, line: u64, side: u64) -> Self {
        let key = epoch.draws(PURPOSE).bits(line.wrapping_mul(2).wrapping_add(side));
        Self { draws: Draws::new(key, 0, PURPOSE), next: 0 }
    }

    pub(crate) fn unit(&mut self) -> f64 {
        self.next += 1;
        self.draws.unit(self.next)
    }
}

/// Algorithm that segments words.
#[derive(Debug)]
enum Algorithm {
    Bpe { merges: Merges, dropout: f64 },
    Unigram { pieces: Pieces, alpha: f64 },
}

/// Segments sentences at random.
#[derive(Debug)]
pub(crate) struct SubwordSampler {
    algorithm: Algorithm,
    /// For each id, true if the token begins a word.
    begins: Vec<bool>,
    /// Ids of tags, which are tokens that were added to the vocabulary and are never divided.
    added: Vec<u32>,
}

impl SubwordSampler {
    /// Makes a sampler of the configured kind.
    ///
    /// # Errors
    /// If the tokenizer is not of the kind that the settings require, or its file cannot be parsed.
    pub(crate) fn new(tokenizer: &Tokenizer, config: &TokenizerConfig) -> Result<Self> {
        let file: serde_json::Value = serde_json::from_str(tokenizer.json()).map_err(|error| {
            Error::Tokenizer { action: "read its file", message: error.to_string() }
        })?;
        let model = &file["model"];
        let algorithm = match model["type"].as_str() {
            Some("BPE") if config.dropout > 0.0 => {
                Algorithm::Bpe { merges: Merges::read(model)?, dropout: config.dropout }
            }
            Some("Unigram") if config.sampling_alpha > 0.0 => {
                Algorithm::Unigram { pieces: Pieces::read(model)?, alpha: config.sampling_alpha }
            }
            kind => {
                let (key, needed) = if config.dropout > 0.0 {
                    ("data.tokenizer.dropout", "BPE")
                } else {
                    ("data.tokenizer.sampling_alpha", "Unigram")
                };
                let message = format!(
                    "needs a {needed} tokenizer, but the tokenizer.json holds {}",
                    kind.unwrap_or("no model")
                );
                return Err(Error::Config { key, message });
            }
        };
        let begins = (0..tokenizer.vocabulary_size() as u32)
            .map(|id| tokenizer.token(id).is_some_and(|token| token.starts_with(WORD_MARKS)))
            .collect();
        let added = file["added_tokens"].as_array().into_iter().flatten();
        let added = added.filter(|token| token["special"] == false);
        let added = added.filter_map(|token| u32::try_from(token["id"].as_u64()?).ok()).collect();
        Ok(Self { algorithm, begins, added })
    }

    /// True if the sampler skips merges of BPE; false if it samples from a unigram model.
    pub(crate) fn is_bpe(&self) -> bool {
        matches!(self.algorithm, Algorithm::Bpe { .. })
    }

    /// Segments the text of `ids` at random. Returns the new ids, and for each of them the index of
    /// its word. `words` has the index of the word of each token in `ids`; if it is empty, the
    /// returned list of words is empty too. Tokens stay unchanged if they belong to several words
    /// that cannot be separated.
    pub(crate) fn segment_words(
        &self,
        ids: &[u32],
        words: &[u32],
        draws: &mut Stream,
    ) -> (Vec<u32>, Vec<u32>) {
        let mut out = Vec::with_capacity(ids.len() * 2);
        let (mut words_out, mut first) = (Vec::with_capacity(words.len() * 2), 0);
        for word in
            ids.chunk_by(|_, next| !self.begins.get(*next as usize).copied().unwrap_or(false))
        {
            let ids_of_word = words.get(first..first + word.len()).unwrap_or_default();
            first += word.len();
            if ids_of_word.iter().any(|one| *one != ids_of_word[0]) {
                out.extend(word);
                words_out.extend(ids_of_word);
                continue;
            }
            match &self.algorithm {
                _ if word.iter().any(|id| self.added.contains(id)) => out.extend(word),
                Algorithm::Bpe { merges, dropout } => {
                    merges.segment(word, *dropout, draws, &mut out)
                }
                Algorithm::Unigram { pieces, alpha } => {
                    pieces.segment(word, *alpha, draws, &mut out)
                }
            }
            if let Some(one) = ids_of_word.first() {
                words_out.resize(out.len(), *one);
            }
        }
        (out, words_out)
    }
}

/// Error for a `tokenizer.json` with a missing or unreadable part, which `what` describes.
pub(crate) fn unreadable(what: &str) -> Error {
    Error::Tokenizer {
        action: "prepare sampling",
        message: format!("its tokenizer.json has no {what} that could be read"),
    }
}
