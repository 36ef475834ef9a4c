//! Settings of hierarchical attention.

use crate::products::Products;
use crate::spec::Dropout;
use candle_core::{Result, Tensor, bail};
use std::ops::Range;
use std::sync::Arc;

/// Settings of a layer of hierarchical attention, apart from its input.
///
/// A chunk of level 1 consists of `chunk` neighbouring tokens, and a chunk of each higher level
/// consists of `chunk` neighbouring chunks of the level below. The summary of a chunk is the mean
/// of its keys and the mean of its values. A token sees the tokens in its own level-1 chunk. At
/// each level but the highest, it also sees the summaries of the other chunks that lie in the same
/// chunk of the next level. At the highest level, it sees the summaries of all other chunks.
#[derive(Debug, Clone)]
pub struct HierarchicalSpec {
    /// Number of heads, among which the width is divided.
    pub heads: usize,
    /// Number of tokens of each sequence.
    pub lengths: Arc<[usize]>,
    /// Whether a token sees only itself, the tokens before it, and summaries of chunks before its
    /// own.
    pub causal: bool,
    /// Number of tokens in a chunk of level 1, and number of chunks in a chunk of each higher
    /// level.
    pub chunk: usize,
    /// Number of levels. Once the highest level of the longest sequence has at most `chunk` chunks,
    /// further levels have no effect.
    pub levels: usize,
    /// Dropout on the attention weights.
    pub dropout: Dropout,
    /// Type to which the operands of matrix products are rounded, forward and backward.
    pub products: Products,
}

impl HierarchicalSpec {
    /// Checks the settings against a tensor that has queries, keys and values side by side,
    /// `(N, 3·D)`. Returns the number of tokens `N`, and the width `D` of all heads together.
    pub(crate) fn check(&self, qkv: &Tensor) -> Result<(usize, usize)> {
        let (tokens, width) = qkv.dims2()?;
        let all: usize = self.lengths.iter().sum();
        let fits = self.heads > 0 && width.is_multiple_of(3 * self.heads) && all == tokens;
        if !fits || self.chunk == 0 || self.levels == 0 {
            bail!(
                "hierarchical attention: shapes do not fit together, or a setting is 0: \
                 projections {:?} of {} heads, {all} tokens in sequences, {} levels of chunks of \
                 {}",
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

/// Sizes of the levels, for the sequences of a batch.
///
/// The scores of a query are an array with one place for each key that it can see. First come the
/// tokens of the query's level-1 chunk. Then follow, for each level but the highest, the chunks
/// that lie in the same chunk of the next level. All chunks of the highest level come last.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hierarchy {
    pub(crate) chunk: usize,
    pub(crate) levels: usize,
    /// Number of chunks at the highest level, in the longest sequence.
    pub(crate) last: usize,
    causal: bool,
}

impl Hierarchy {
    /// Returns the number of places for the keys of a query.
    pub(crate) const fn places(&self) -> usize {
        self.levels * self.chunk + self.last
    }

    /// Returns the number of chunks at each level, from level 1 on, for a sequence of `length`
    /// tokens.
    pub(crate) fn counts(&self, length: usize) -> Vec<usize> {
        let mut count = length;
        let next = |_| {
            count = count.div_ceil(self.chunk);
            count
        };
        (0..self.levels).map(next).collect()
    }

    /// Returns the number of tokens in the chunk `index` of a level, in a sequence of `length`
    /// tokens. The lowest level is 1.
    pub(crate) fn tokens(&self, level: usize, index: usize, length: usize) -> usize {
        let size = u32::try_from(level).ok().and_then(|level| self.chunk.checked_pow(level));
        let size = size.unwrap_or(usize::MAX);
        length.saturating_sub(size.saturating_mul(index)).min(size)
    }

    /// Returns three values for each level, from level 1 on. The first is the level. The second is
    /// a range of chunks: those that lie in the same chunk of the next level as the level-1 chunk
    /// `chunk` or, at the highest level, all chunks. The third is the index of the chunk that
    /// contains `chunk`. `counts`: number of chunks at each level.
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

    /// Returns the ranges of summaries that the tokens in the level-1 chunk `chunk` see, level by
    /// level. For each range: the level, the range of chunks, and the place of its first chunk in
    /// the scores. `counts`: number of chunks at each level.
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
