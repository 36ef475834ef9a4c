//! Settings of training.

use std::time::Duration;

use super::corpus::LONGEST_SENTENCE;
use crate::{Error, Format, Result};

/// Direction of prediction between a word and its context words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Architecture {
    /// A word predicts each of its context words.
    #[default]
    SkipGram,
    /// The mean of the context words predicts the word.
    Cbow,
}

/// Settings that determine the vectors: the same settings and text give the same vectors.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainingSettings {
    /// Direction of prediction.
    pub architecture: Architecture,
    /// Number of dimensions of a vector.
    pub dimensions: usize,
    /// Largest number of context words on each side. For each word, the actual number is drawn from
    /// 1 to this number.
    pub window: usize,
    /// Number of negative samples for each positive pair.
    pub negatives: usize,
    /// Number of passes over the text.
    pub epochs: u64,
    /// Initial learning rate. It falls linearly to `last_learning_rate`.
    pub learning_rate: f64,
    /// Learning rate at the end of training.
    pub last_learning_rate: f64,
    /// Threshold of subsampling, at least 0 and below 1. It is compared with the share of a word
    /// among all occurrences of words that get a vector. If the share is larger, occurrences of the
    /// word are skipped at random; the larger the share, the more of them. 0 disables subsampling.
    pub subsampling: f64,
    /// Smallest number of occurrences for which a word gets a vector.
    pub min_count: u64,
    /// Largest number of words that get a vector, beginning with the most frequent; `None` if there
    /// is no limit.
    pub max_words: Option<usize>,
    /// Whether the text is converted to lower case.
    pub lowercase: bool,
    /// Seed of random numbers.
    pub seed: u64,
}

impl Default for TrainingSettings {
    fn default() -> Self {
        Self {
            architecture: Architecture::SkipGram,
            dimensions: 100,
            window: 5,
            negatives: 5,
            epochs: 5,
            learning_rate: 0.025,
            last_learning_rate: 1e-4,
            subsampling: 1e-3,
            min_count: 5,
            max_words: None,
            lowercase: false,
            seed: 1,
        }
    }
}

/// Settings that do not change the vectors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Number of bytes of memory that training may use; `None` if there is no limit.
    pub memory: Option<u64>,
    /// Time between checkpoints.
    pub save_every: Duration,
    /// File format of the vectors.
    pub format: Format,
}

impl Default for Limits {
    fn default() -> Self {
        Self { memory: None, save_every: Duration::from_secs(600), format: Format::Binary }
    }
}

impl TrainingSettings {
    /// Refuses invalid values.
    pub(super) fn check(&self) -> Result<()> {
        let whole = |setting, value: u64, most: u64| {
            let expected = format!("a whole number from 1 to {most} is expected");
            let refused = Error::Setting { setting, value: value.to_string(), expected };
            if (1..=most).contains(&value) { Ok(()) } else { Err(refused) }
        };
        let real = |setting, value: f64, holds: bool, expected: &str| {
            let (value, expected) = (value.to_string(), expected.to_owned());
            if holds { Ok(()) } else { Err(Error::Setting { setting, value, expected }) }
        };
        whole("--dimensions", self.dimensions as u64, 1 << 16)?;
        whole("--window", self.window as u64, 1000)?;
        whole("--negatives", self.negatives as u64, 1000)?;
        whole("--epochs", self.epochs, 1_000_000)?;
        whole("--min-count", self.min_count, u64::MAX)?;
        let (first, last) = (self.learning_rate, self.last_learning_rate);
        let positive = "a number above 0, at most 1, is expected";
        real("--learning-rate", first, first > 0.0 && first <= 1.0, positive)?;
        let below = "a number from 0 to the learning rate at the beginning is expected";
        real("--last-learning-rate", last, (0.0..=first).contains(&last), below)?;
        let part = self.subsampling;
        let below_1 = "a number from 0, and below 1, is expected";
        real("--subsampling", part, (0.0..1.0).contains(&part), below_1)
    }

    /// Number of bytes of a vector in memory.
    fn vector_bytes(&self) -> u64 {
        64 * crate::lanes::groups(self.dimensions) as u64
    }

    /// Number of bytes of the working space for a chunk of the text. The next chunk, which is read
    /// in the meantime, takes no such space.
    fn chunk_bytes(&self) -> u64 {
        /// Number of bytes of a pair of rows. A pair has 8 bytes, but a list can have twice the
        /// capacity that it needs.
        const PAIR: u64 = 16;
        // A chunk ends with a complete sentence. The mean number of context words of a word is one
        // more than the window.
        let words = self.architecture.chunk() + LONGEST_SENTENCE as u64;
        let (context, targets) = (self.window as u64 + 1, self.negatives as u64 + 1);
        words
            * match self.architecture {
                Architecture::SkipGram => PAIR * context * targets,
                // A word takes the mean of its context vectors, a copy of this mean, and its pairs.
                // Lists can have twice the capacity that they need.
                Architecture::Cbow => 4 * self.vector_bytes() + PAIR * (context + targets),
            }
    }

    /// Refuses a vocabulary of `words` words if training would take more than `allowed` bytes.
    pub(super) fn check_memory(&self, words: usize, allowed: Option<u64>) -> Result<()> {
        /// Number of bytes that a word takes, including its entry in the table of words.
        const WORD: u64 = 120;
        let Some(allowed) = allowed else { return Ok(()) };
        let row = 2 * self.vector_bytes();
        let fixed = (16 << 20) + self.chunk_bytes();
        let needed = fixed + words as u64 * (row + WORD);
        if needed <= allowed {
            return Ok(());
        }
        Err(Error::Memory {
            words,
            dimensions: self.dimensions,
            needed: needed >> 20,
            allowed: allowed >> 20,
            fitting: usize::try_from(allowed.saturating_sub(fixed) / (row + WORD)).unwrap_or(words),
        })
    }
}
