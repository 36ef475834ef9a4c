//! Input of a search.

use crate::search::phrases::token_count;
use crate::{DecodingConfig, OutputLimits};

/// One sentence to translate.
#[derive(Clone, Copy, Debug)]
pub struct Sentence<'a> {
    /// Tokens, ending with `</s>`; empty or only `</s>` for an empty line.
    pub source: &'a [u32],
    /// Tokens with which every translation must begin, without `<s>`; empty for no constraint.
    pub prefix: &'a [u32],
    /// Phrases that every translation must contain, anywhere and in any order, each without other
    /// tokens inside. A sentence with phrases is always translated by beam search, whatever the
    /// configuration says. At the maximum length a translation may lack some.
    pub phrases: &'a [Vec<u32>],
    /// Number that distinguishes its draws from those of other sentences.
    pub number: u64,
}

impl<'a> Sentence<'a> {
    /// Makes sentences without prefixes, numbered from 0.
    pub fn plain<S: AsRef<[u32]>>(sources: &'a [S]) -> Vec<Self> {
        sources
            .iter()
            .zip(0..)
            .map(|(source, number)| Self {
                source: source.as_ref(),
                prefix: &[],
                phrases: &[],
                number,
            })
            .collect()
    }

    /// Limits on the length of the output, for a model that takes at most `longest` tokens. A
    /// prefix may exceed the configuration's limits, and there is room for phrases in addition to
    /// other tokens.
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
