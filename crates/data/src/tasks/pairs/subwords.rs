//! Segmenting both sides of training pairs anew in each epoch.

use crate::text::subwords::{Stream, SubwordSampler};
use crate::{Epoch, Error, Result, TokenizerConfig, TokenizerPair};

/// Segments the pairs of a training split at random.
#[derive(Debug)]
pub(crate) struct PairSampler {
    source: SubwordSampler,
    /// None where both sides share a tokenizer.
    target: Option<SubwordSampler>,
    /// A side that would get more tokens than this stays as the tokenizer cuts it.
    pub(crate) max_tokens: usize,
}

impl PairSampler {
    /// A sampler as configured, or none where nothing is to be sampled.
    ///
    /// # Errors
    /// When the tokenizer is not of the kind that the settings are for, or its file cannot be
    /// understood.
    pub(crate) fn new(
        tokenizers: &TokenizerPair,
        config: &TokenizerConfig,
        max_tokens: usize,
    ) -> Result<Option<Self>> {
        if config.dropout == 0.0 && config.sampling_alpha == 0.0 {
            return Ok(None);
        }
        let source = SubwordSampler::new(tokenizers.source(), config)?;
        let target = if tokenizers.is_joint() {
            None
        } else {
            Some(SubwordSampler::new(tokenizers.target(), config)?)
        };
        let is_bpe = SubwordSampler::is_bpe;
        let sides = || std::iter::once(&source).chain(&target);
        let settings = [
            ("data.tokenizer.dropout", config.dropout, "BPE", sides().any(is_bpe)),
            (
                "data.tokenizer.sampling_alpha",
                config.sampling_alpha,
                "Unigram",
                !sides().all(is_bpe),
            ),
        ];
        for (key, strength, needed, found) in settings {
            if strength > 0.0 && !found {
                return Err(Error::Config {
                    key,
                    message: format!("needs a {needed} tokenizer, and there is none: set it to 0"),
                });
            }
        }
        Ok(Some(Self { source, target, max_tokens }))
    }

    /// The pair of `line` as this epoch sees it.
    pub(crate) fn segment(
        &self,
        source: Vec<u32>,
        target: Vec<u32>,
        epoch: Epoch,
        line: u64,
    ) -> (Vec<u32>, Vec<u32>) {
        let side = |sampler: &SubwordSampler, ids: Vec<u32>, side: u64| {
            let sampled = sampler.segment(&ids, &mut Stream::new(epoch, line, side));
            if sampled.len() > self.max_tokens { ids } else { sampled }
        };
        (
            side(&self.source, source, 0),
            side(self.target.as_ref().unwrap_or(&self.source), target, 1),
        )
    }
}
