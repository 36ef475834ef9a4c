//! A small model whose logits are a hash of the source and of all tokens so far, and random sources
//! for tests.

// Each test program uses only some of this module.
#![allow(dead_code)]

use std::sync::atomic::{AtomicUsize, Ordering};

use taper_decoding::{DecodingConfig, DecodingError, END, Result, StepModel};

/// Mixes two numbers by the final mixing function of SplitMix64.
pub(crate) fn mix(a: u64, b: u64) -> u64 {
    let mut z = a ^ b.wrapping_add(0x9e37_79b9_7f4a_7c15).rotate_left(17);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A model whose logits are a hash of the source, the tokens so far and the next token.
#[derive(Debug)]
pub(crate) struct HashModel {
    pub(crate) vocabulary: usize,
    pub(crate) seed: u64,
    /// Logits, without `end_bias`, are at least 0 and below this number.
    pub(crate) spread: f32,
    /// Number added to the logit of `</s>`.
    pub(crate) end_bias: f32,
    /// Number of distinct values that a logit can have; few values make many ties.
    pub(crate) levels: u64,
    /// Largest number of output tokens, if there is a limit.
    pub(crate) longest: Option<usize>,
    /// Whether threads take separate batches (see [`StepModel::gains_from_workers`]).
    pub(crate) apart: bool,
    pub(crate) starts: AtomicUsize,
    pub(crate) rows_stepped: AtomicUsize,
}

impl HashModel {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            vocabulary: 8,
            seed,
            spread: 4.0,
            end_bias: 0.0,
            levels: 1 << 20,
            longest: None,
            apart: false,
            starts: AtomicUsize::new(0),
            rows_stepped: AtomicUsize::new(0),
        }
    }

    pub(crate) fn logits(&self, history: u64) -> Vec<f32> {
        (0..self.vocabulary as u32)
            .map(|token| {
                let level = mix(history, u64::from(token) + 1000) % self.levels;
                let bias = if token == END { self.end_bias } else { 0.0 };
                self.spread * level as f32 / self.levels as f32 + bias
            })
            .collect()
    }

    pub(crate) fn history_of_source(&self, source: &[u32]) -> u64 {
        source.iter().fold(self.seed, |history, &token| mix(history, u64::from(token)))
    }
}

impl StepModel for HashModel {
    /// Hash of the source and of the tokens so far, for each row.
    type State = Vec<u64>;

    fn vocabulary_size(&self) -> usize {
        self.vocabulary
    }

    fn longest_output(&self) -> Option<usize> {
        self.longest
    }

    fn gains_from_workers(&self) -> bool {
        self.apart
    }

    fn start(&self, sources: &[&[u32]]) -> Result<Vec<u64>> {
        assert!(sources.iter().all(|source| !source.is_empty()));
        self.starts.fetch_add(1, Ordering::Relaxed);
        Ok(sources.iter().map(|source| self.history_of_source(source)).collect())
    }

    fn step(
        &self,
        state: &mut Vec<u64>,
        tokens: &[u32],
        read: impl FnMut(&[f32]) -> Result<()>,
    ) -> Result<()> {
        if state.len() != tokens.len() {
            let message = format!("{} rows but {} tokens", state.len(), tokens.len());
            return Err(DecodingError::model("step", message));
        }
        self.rows_stepped.fetch_add(tokens.len(), Ordering::Relaxed);
        let mut logits = Vec::new();
        for (history, &token) in state.iter_mut().zip(tokens) {
            *history = mix(*history, u64::from(token));
            logits.extend(self.logits(*history));
        }
        // Passes blocks of five rows; the last block can have fewer rows.
        logits.chunks(5 * self.vocabulary).try_for_each(read)
    }

    fn select(&self, state: &mut Vec<u64>, rows: &[usize]) -> Result<()> {
        *state = rows.iter().map(|&row| state[row]).collect();
        Ok(())
    }
}

/// Makes `count` sources, each with 1 to 9 tokens and `</s>`.
pub(crate) fn random_sources(count: usize, seed: u64) -> Vec<Vec<u32>> {
    (0..count as u64)
        .map(|index| {
            let length = 1 + mix(seed, index) % 9;
            (0..length)
                .map(|position| 4 + (mix(mix(seed, index), position) % 40) as u32)
                .chain([END])
                .collect()
        })
        .collect()
}

/// Makes a configuration whose outputs have at most `max_length` tokens for any source, and whose
/// searches stop only when nothing can change their result.
pub(crate) fn short_outputs(beam_size: usize, max_length: usize) -> DecodingConfig {
    DecodingConfig {
        beam_size,
        max_length_ratio: 0.0,
        max_length_offset: max_length,
        patience: 0.0,
        ..DecodingConfig::default()
    }
}
