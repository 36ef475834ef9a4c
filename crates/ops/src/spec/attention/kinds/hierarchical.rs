//! Settings of hierarchical attention.

use crate::products::Products;
use crate::spec::Dropout;
use candle_core::{Result, Tensor, bail};
use std::ops::Range;
use std::sync::Arc;

/// Settings of a layer of hierarchical attention, apart from its input.
///
/// A chunk of the first level has `chunk` tokens, and a chunk of each further level has `chunk`
/// chunks of the level below. The summary of a chunk is the mean of its keys and the mean of its
/// values. A token sees the tokens of its own chunk. At each level but the last, it also sees the
/// other chunks within its own chunk of the level above; at the last level, all other chunks.
#[derive(Debug, Clone)]
pub struct HierarchicalSpec {
    /// Number of heads; the width is divided among them.
    pub heads: usize,
    /// Number of tokens of each sequence.
    pub lengths: Arc<[usize]>,
    /// True if a token sees only itself and tokens before it, and only chunks before its own.
    pub causal: bool,
    /// Number of tokens of a chunk.
    pub chunk: usize,
    /// Number of levels of summaries. Once the last level has no more chunks than a chunk has
    /// tokens, further levels have no effect.
    pub levels: usize,
    /// Dropout on the attention weights.
    pub dropout: Dropout,
    /// Rounding of the operands of the products, forward and backward.
    pub products: Products,
}

impl HierarchicalSpec {
    /// Checks the shape of a tensor; returns its number of tokens, and the width of all heads
    /// together.
    pub(crate) fn check(&self, qkv: &Tensor) -> Result<(usize, usize)> {
        let (tokens, width) = qkv.dims2()?;
        let all: usize = self.lengths.iter().sum();
        let fits = self.heads > 0 && width.is_multiple_of(3 * self.heads) && all == tokens;
        if !fits || self.chunk == 0 || self.levels == 0 {
            bail!(
                "hierarchical attention: projections {:?} of {} heads, {all} tokens in sequences, \
                 {} levels of chunks of {}",
                qkv.shape(),
                self.heads,
                self.levels,
                self.chunk
            );
        }
        Ok((tokens, width / 3))
    }

    pub(crate) fn hierarchy(&self) -> Hierarchy {
        let longest = self.lengths.iter().copied().max().unwrap_or(0);
        let chunk = self.chunk.min(longest.max(1));
        let mut levels = 1;
        let mut last = longest.div_ceil(chunk);
        while levels < self.levels && last > chunk {
            last = last.div_ceil(chunk);
            levels += 1;
        }
        Hierarchy { chunk, levels, last, causal: self.causal }
    }
}

/// Levels of the sequences of a batch.
///
/// A query has a place for each key that it may see: for the tokens of its own chunk; at each level
/// but the last, for the chunks within its own chunk of the level above; and at the last level, for
/// all chunks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hierarchy {
    pub(crate) chunk: usize,
    pub(crate) levels: usize,
    /// Number of chunks at the last level of the longest sequence.
    pub(crate) last: usize,
    causal: bool,
}

impl Hierarchy {
    /// Number of places for the keys of a query.
    pub(crate) const fn places(&self) -> usize {
        self.levels * self.chunk + self.last
    }

    /// Number of chunks at each level of a sequence.
    pub(crate) fn counts(&self, length: usize) -> Vec<usize> {
        let mut count = length;
        let next = |_| {
            count = count.div_ceil(self.chunk);
            count
        };
        (0..self.levels).map(next).collect()
    }

    /// Tokens of a chunk in a sequence of `length` tokens; levels are counted from 1.
    pub(crate) fn tokens(&self, level: usize, index: usize, length: usize) -> usize {
        let size = u32::try_from(level).ok().and_then(|level| self.chunk.checked_pow(level));
        let size = size.unwrap_or(usize::MAX);
        length.saturating_sub(size.saturating_mul(index)).min(size)
    }

    /// For each level, counted from 1: range of chunks whose summaries the tokens of a first-level
    /// chunk see, and the chunk that contains these tokens.
    fn siblings(
        &self,
        chunk: usize,
        counts: &[usize],
    ) -> impl Iterator<Item = (usize, Range<usize>, usize)> {
        let mut containing = chunk;
        (1..=self.levels).map(move |level| {
            let count = counts[level - 1];
            let first = if level < self.levels { containing / self.chunk * self.chunk } else { 0 };
            let end = if level < self.levels { count.min(first + self.chunk) } else { count };
            let siblings = (level, first..end, containing);
            containing /= self.chunk;
            siblings
        })
    }

    /// Summaries that the tokens of a first-level chunk see, level by level: the level, a range of
    /// chunks, and the place of the first.
    pub(crate) fn seen(
        &self,
        chunk: usize,
        counts: &[usize],
    ) -> impl Iterator<Item = (usize, Range<usize>, usize)> {
        let (size, causal) = (self.chunk, self.causal);
        self.siblings(chunk, counts).flat_map(move |(level, among, own)| {
            let place = level * size;
            let before = (level, among.start..own, place);
            let after = own + 1..if causal { own + 1 } else { among.end.max(own + 1) };
            [before, (level, after, place + own + 1 - among.start)]
        })
    }
}
