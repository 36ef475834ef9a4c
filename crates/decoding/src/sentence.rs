//! The input of a search: a sentence, with constraints on its translations.

use crate::search::phrases::token_count;
use crate::{DecodingConfig, OutputLimits};

/// A sentence to translate, or a prompt to continue.
#[derive(Clone, Copy, Debug)]
pub struct Sentence<'a> {
    /// Tokens of the source, ending with `</s>`. The source of an empty line has no tokens, or only
    /// `</s>`.
    pub source: &'a [u32],
    /// Tokens with which every translation must begin, without `<s>`; empty if translations can
    /// begin with any tokens.
    pub prefix: &'a [u32],
    /// Phrases that every translation must contain, anywhere and in any order. The tokens of a
    /// phrase are adjacent in the translation. Only the first 64 phrases are required. A sentence
    /// with phrases is always translated by beam search, even if the configuration selects greedy
    /// search or sampling. A translation that reaches the maximum length can lack some phrases.
    pub phrases: &'a [Vec<u32>],
    /// Tokens that translations may contain, ascending; `None` if they may contain all tokens. The
    /// list must include the end token, and the tokens of prefix and phrases.
    /// [`Shortlist::candidates`](crate::Shortlist::candidates) makes such a list.
    pub candidates: Option<&'a [u32]>,
    /// Number that determines the random draws of the sentence; sentences with different numbers
    /// have different draws.
    pub number: u64,
}

impl<'a> Sentence<'a> {
    /// Makes sentences without prefixes, phrases and candidates, numbered from 0.
    pub fn plain<S: AsRef<[u32]>>(sources: &'a [S]) -> Vec<Self> {
        sources
            .iter()
            .zip(0..)
            .map(|(source, number)| Self {
                source: source.as_ref(),
                prefix: &[],
                phrases: &[],
                candidates: None,
                number,
            })
            .collect()
    }

    /// Returns the width of the beam for the sentence: the configured beam size or, if this is
    /// larger, the number of phrase tokens plus one.
    pub(crate) fn beam_width(&self, config: &DecodingConfig) -> usize {
        match token_count(self.phrases) {
            0 => config.beam_size,
            tokens => config.beam_size.max(tokens + 1),
        }
    }

    /// Returns the number of groups of a diverse beam search for the sentence. It is 1 if there are
    /// phrases, because they already divide the beam in another way.
    pub(crate) fn groups(&self, config: &DecodingConfig) -> usize {
        if self.phrases.is_empty() { config.diverse_groups.max(1) } else { 1 }
    }

    /// Returns the largest number of hypotheses of the sentence that are stepped together, each as
    /// one row of the model's batch.
    pub(crate) fn rows(&self, config: &DecodingConfig) -> usize {
        match config.sampling.is_active() && self.phrases.is_empty() {
            true => config.n_best,
            false => self.beam_width(config),
        }
    }

    /// Returns the limits on the length of the output, for a model whose outputs have at most
    /// `longest` tokens. The maximum length is increased by the number of phrase tokens, and is at
    /// least the length of the prefix.
    pub(crate) fn limits(&self, config: &DecodingConfig, longest: Option<usize>) -> OutputLimits {
        let limits = config.output_limits(self.source.len().saturating_sub(1));
        let max_length = limits
            .max_length
            .saturating_add(token_count(self.phrases))
            .max(self.prefix.len())
            .min(longest.unwrap_or(usize::MAX));
        OutputLimits { min_length: limits.min_length.min(max_length), max_length, ..limits }
    }
}
