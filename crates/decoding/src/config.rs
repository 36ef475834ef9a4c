//! The settings of a search and the limits that follow from them.

use serde::{Deserialize, Serialize};

use crate::{DecodingError, Result};

/// How to search for translations.
///
/// The penalty of 0.6 is that of Vaswani et al. 2017, "Attention Is All You Need", section 6.1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DecodingConfig {
    /// Hypotheses that are followed at once; 1 is greedy search.
    pub beam_size: usize,
    /// Translations to return per sentence, best first; at most `beam_size`. The fewer, the
    /// earlier the search can stop.
    pub n_best: usize,
    /// The exponent `α` of the [length penalty](crate::length_penalty); 0 compares plain
    /// log-probabilities, which favours short output.
    pub length_penalty: f64,
    /// Output tokens allowed per source token; both counted without `</s>`.
    pub max_length_ratio: f64,
    /// Output tokens allowed on top of `max_length_ratio` times the source length.
    pub max_length_offset: usize,
    /// Output tokens allowed whatever the source length.
    pub max_length: usize,
    /// Output tokens required, without `</s>`; gives way to the maximum where they conflict.
    pub min_length: usize,
    /// Whether the output may hold `<unk>`.
    pub allow_unknown: bool,
    /// The most source tokens of one batch, each counted once per hypothesis. A sentence that is
    /// longer on its own makes a batch of one.
    pub batch_tokens: usize,
    /// The most hypotheses of one batch; at least one sentence is taken.
    pub batch_rows: usize,
}

impl Default for DecodingConfig {
    fn default() -> Self {
        Self {
            beam_size: 5,
            n_best: 1,
            length_penalty: 0.6,
            max_length_ratio: 2.0,
            max_length_offset: 10,
            max_length: 512,
            min_length: 0,
            allow_unknown: false,
            batch_tokens: 8192,
            batch_rows: 512,
        }
    }
}

/// How long the output for one source may be, in tokens without `</s>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputLimits {
    /// `</s>` may not follow fewer tokens.
    pub min_length: usize,
    /// Only `</s>` may follow this many tokens.
    pub max_length: usize,
}

impl DecodingConfig {
    /// Checks every value.
    ///
    /// # Errors
    /// [`DecodingError::Config`] for the first value out of range.
    pub fn validate(&self) -> Result<()> {
        at_least_one("beam_size", self.beam_size)?;
        at_least_one("n_best", self.n_best)?;
        at_least_one("max_length", self.max_length)?;
        at_least_one("batch_tokens", self.batch_tokens)?;
        at_least_one("batch_rows", self.batch_rows)?;
        not_negative("length_penalty", self.length_penalty)?;
        not_negative("max_length_ratio", self.max_length_ratio)?;
        if self.n_best > self.beam_size {
            let expected = format!("at most decoding.beam_size, {}", self.beam_size);
            return Err(refused("n_best", self.n_best, expected));
        }
        if self.min_length > self.max_length {
            let expected = format!("at most decoding.max_length, {}", self.max_length);
            return Err(refused("min_length", self.min_length, expected));
        }
        Ok(())
    }

    /// The limits for a source of `source_length` tokens, its `</s>` not counted.
    pub fn output_limits(&self, source_length: usize) -> OutputLimits {
        // A float-to-integer cast saturates, so a huge ratio means "no limit by ratio".
        let by_ratio = (self.max_length_ratio * source_length as f64).floor() as usize;
        let max_length = by_ratio.saturating_add(self.max_length_offset).min(self.max_length);
        OutputLimits { min_length: self.min_length.min(max_length), max_length }
    }
}

fn refused(key: &'static str, value: impl ToString, expected: String) -> DecodingError {
    let value = value.to_string();
    DecodingError::Config { key, value, expected }
}

fn at_least_one(key: &'static str, value: usize) -> Result<()> {
    if value == 0 {
        return Err(refused(key, value, "at least 1".to_owned()));
    }
    Ok(())
}

fn not_negative(key: &'static str, value: f64) -> Result<()> {
    if !value.is_finite() || value < 0.0 {
        return Err(refused(key, value, "a finite number from 0 up".to_owned()));
    }
    Ok(())
}
