//! Segments both sides of training pairs into subwords, differently in each epoch.

use crate::text::subwords::{Stream, SubwordSampler};
use crate::{Epoch, Error, Pair, Result, TokenizerConfig, TokenizerPair};

/// Segments the pairs of a training split at random.
#[derive(Debug)]
pub(crate) struct PairSampler {
    source: SubwordSampler,
    /// `None` if both sides share a tokenizer.
    target: Option<SubwordSampler>,
    /// Largest number of tokens of a side. A side to which sampling would give more tokens keeps
    /// the segmentation of the tokenizer.
    pub(crate) max_tokens: usize,
}

impl PairSampler {
    /// Makes the configured sampler. `None` if the configuration does not ask for sampling.
    ///
    /// # Errors
    /// If the kind of the tokenizer does not suit the settings, or its file cannot be parsed.
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
        for (key, strength, needed, is_available) in settings {
            if strength > 0.0 && !is_available {
                return Err(Error::Config {
                    key,
                    message: format!("needs a {needed} tokenizer, but there is none: set it to 0"),
                });
            }
        }
        Ok(Some(Self { source, target, max_tokens }))
    }

    /// Segments the pair at random for `epoch`.
    pub(crate) fn segment(&self, mut pair: Pair, epoch: Epoch) -> Pair {
        let (mut none, mut neither) = (Vec::new(), Vec::new());
        let (source_words, target_words) = match &mut pair.links {
            Some(links) => (&mut links.source_words, &mut links.target_words),
            None => (&mut none, &mut neither),
        };
        let side = |sampler: &SubwordSampler, ids: &mut Vec<u32>, words: &mut Vec<u32>, side| {
            let draws = &mut Stream::new(epoch, pair.line, side);
            let sampled = sampler.segment_words(ids, words, draws);
            if sampled.0.len() <= self.max_tokens {
                (*ids, *words) = sampled;
            }
        };
        side(&self.source, &mut pair.source, source_words, 0);
        let target = self.target.as_ref().unwrap_or(&self.source);
        side(target, &mut pair.target, target_words, 1);
        pair
    }
}
