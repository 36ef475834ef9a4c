//! Settings of attention, and the keys that each query sees in decoding.

pub(super) mod compact;
pub(super) mod dual_chunk;
#[cfg(feature = "kinds")]
pub(crate) mod kinds;
pub(super) mod sparse;

use self::compact::CompactRows;
use self::dual_chunk::DualChunk;
use self::sparse::{Sight, Sparse};
use super::attention_shape::AttentionShape;
use super::dropout::Dropout;
use crate::products::Products;
use candle_core::{Result, Tensor};
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

/// Settings of an attention layer, apart from its inputs.
#[derive(Debug, Clone)]
pub struct AttentionSpec {
    /// Numbers of heads, their width, and the multiplier of scores.
    pub shape: AttentionShape,
    /// Number of tokens of each query sequence; their sum is the number of rows of the query
    /// tensor.
    pub query_lengths: Arc<[usize]>,
    /// Number of tokens of each key sequence; query sequence `i` sees key sequence `i`.
    pub key_lengths: Arc<[usize]>,
    /// Whether a query sees only keys at or before its own position.
    pub causal: bool,
    /// Sparse pattern that further restricts the keys that a query sees; `None` for no restriction.
    /// A pattern is allowed only if the query positions of each sequence are its last key
    /// positions, as in self-attention.
    pub sparse: Option<Sparse>,
    /// Chunks of dual chunk attention, which determine the positions by which queries are rotated;
    /// `None` for one rotation by the true position. They are allowed only in causal
    /// self-attention. With chunks, queries have [`DualChunk::ROTATIONS`] times as many columns:
    /// all heads in the first rotation, then all heads in the second, and so on.
    pub dual_chunk: Option<DualChunk>,
    /// Position of the first query of each sequence among the sequence's keys: 0 except for
    /// decoding with a cache.
    pub query_start: usize,
    /// ALiBi's slope for each head, which adds `-slope · |i - j|` to the score of query `i` and key
    /// `j` (Press et al. 2022).
    pub slopes: Option<Arc<[f64]>>,
    /// Dropout on the attention weights.
    pub dropout: Dropout,
    /// Type to which the operands of matrix products are rounded, forward and backward. For short
    /// sequences they are not rounded, because rounding and packing would take longer than the
    /// product.
    pub products: Products,
}

impl AttentionSpec {
    /// Makes settings for self-attention over sequences of these lengths, without a mask or
    /// dropout, in f32.
    #[must_use]
    pub fn new(shape: AttentionShape, lengths: impl Into<Arc<[usize]>>) -> Self {
        let lengths = lengths.into();
        Self {
            shape,
            key_lengths: Arc::clone(&lengths),
            query_lengths: lengths,
            causal: false,
            sparse: None,
            dual_chunk: None,
            query_start: 0,
            slopes: None,
            dropout: Dropout::none(),
            products: Products::F32,
        }
    }

    /// Returns the number of rotations of each query.
    #[must_use]
    pub fn rotations(&self) -> usize {
        self.dual_chunk.map_or(1, |_| DualChunk::ROTATIONS)
    }

    /// Returns the number of columns of the queries, with all their rotations.
    #[must_use]
    pub fn queries_width(&self) -> usize {
        self.shape.query_width().saturating_mul(self.rotations())
    }

    /// Returns the number of pairs of a query and a key that it sees, over all sequences and heads.
    /// For a pair, the score and the weighted value each take as many multiplications, and as many
    /// additions, as a head is wide.
    #[must_use]
    pub fn pairs(&self) -> u64 {
        let of_head = |head: usize| -> u64 {
            let lengths = self.query_lengths.iter().zip(self.key_lengths.iter());
            lengths.map(|(&queries, &keys)| self.pairs_of_sequence(head, queries, keys)).sum()
        };
        (0..self.shape.heads).map(of_head).sum()
    }

    fn pairs_of_sequence(&self, head: usize, queries: usize, keys: usize) -> u64 {
        let sight = Sight::new(self, head, keys);
        let mut seen = Vec::new();
        let of_query = |query: usize| match &sight {
            Some(sight) => {
                sight.keys_of(query..query + 1, 0..keys, &mut seen);
                seen.iter().map(|range| range.len() as u64).sum()
            }
            None if self.causal => keys.min(query + 1) as u64,
            None => keys as u64,
        };
        (self.query_start..self.query_start + queries).map(of_query).sum()
    }
}

#[cfg(test)]
impl AttentionSpec {
    /// Makes settings with one head and no sequences.
    pub(crate) fn single_head() -> Self {
        Self::new(AttentionShape::with_heads(1, 1), [])
    }
}

/// Returns the index in the dropout mask for a query row, a head, and a key's position in its
/// sequence.
///
/// This index is defined only here: the reference, composed of Candle's operations, must drop the
/// same weights.
pub(crate) fn mask_index(
    query_row: usize,
    heads: usize,
    head: usize,
    longest_key: usize,
    key: usize,
) -> usize {
    (query_row * heads + head) * longest_key + key
}

/// Marks, in place of a row index, a token that a query does not see.
pub const ABSENT: u32 = u32::MAX;

/// Keys and values that each query sees in decoding. `K` is the width of all heads of a key.
#[derive(Debug, Clone, Copy)]
pub enum VisibleKeys<'a> {
    /// Tokens of a source, such as the text to be translated: each query sees a range of the rows
    /// of a tensor.
    Source {
        /// Keys and values side by side, `(M, 2·K)`.
        key_value: &'a Tensor,
        /// For each query, the range of rows that it sees.
        rows: &'a [Range<usize>],
    },
    /// Past tokens. The rows of texts that were read in a single pass (prompts) come first. Then
    /// follow the tokens that were decoded step by step: for query `r`, token `j` is row
    /// `history[j][r]` of step `j`.
    Past {
        /// Rows of the past tokens, each with key and value side by side, `2·K`.
        kept: CachedRows<'a>,
        /// For each query, the range of rows that it sees among those of texts that were read in a
        /// single pass. The list is empty if there are no texts.
        text: &'a [Range<usize>],
        /// For each step, the row that each query sees; [`ABSENT`] if it sees none.
        history: &'a [Vec<u32>],
        /// Relative position bias `(H, Q, T)`, for `H` heads, `Q` positions of queries and `T`
        /// tokens. Only the first of the `Q` rows is used: it is added to the scores of each query.
        /// The last column is for the last token that a query sees; earlier columns are for earlier
        /// tokens.
        bias: Option<&'a Tensor>,
        /// ALiBi's slope for each head, which multiplies the distance to the last token (Press et
        /// al. 2022).
        slopes: Option<&'a Arc<[f64]>>,
        /// Sparse pattern that restricts the tokens that a query sees; `None` for no restriction. A
        /// query counts as being at the position of its last token.
        sparse: Option<Sparse>,
        /// Chunks of dual chunk attention; if there are any, the query has as many columns as for
        /// [`AttentionSpec::dual_chunk`].
        dual_chunk: Option<DualChunk>,
    },
}

/// Rows of past tokens in a [`Cache`](crate::Cache), each with key and value. `W` is the width of a
/// row.
#[derive(Debug, Clone, Copy)]
pub enum CachedRows<'a> {
    /// Rows in separate tensors, one for each addition to the cache.
    Apart {
        /// Rows of texts that were read in a single pass (prompts), `(M, W)`.
        text: Option<&'a Tensor>,
        /// Rows of each step `j`, `(R_j, W)`.
        steps: &'a [Tensor],
    },
    /// Rows in a single tensor, in which some can be unused.
    Joined {
        /// All rows, `(M, W)`.
        rows: &'a Tensor,
        /// Index of the row of each token of the texts.
        text: &'a [u32],
        /// For each step, the index of its first row, and the number of its rows.
        steps: &'a [(u32, u32)],
    },
    /// Rows in fewer bits, on the host.
    Compact {
        /// Rows of texts that were read in a single pass (prompts), `(M, W)`.
        text: Option<&'a CompactRows>,
        /// Rows of each step `j`, `(R_j, W)`.
        steps: &'a [Arc<CompactRows>],
    },
}

impl CachedRows<'_> {
    /// Returns the number of steps.
    #[must_use]
    pub fn steps(&self) -> usize {
        match self {
            Self::Apart { steps, .. } => steps.len(),
            Self::Joined { steps, .. } => steps.len(),
            Self::Compact { steps, .. } => steps.len(),
        }
    }

    /// Returns the number of rows of texts.
    ///
    /// # Errors
    /// If the rows are in a tensor without dimensions.
    pub fn texts(&self) -> Result<usize> {
        match self {
            Self::Apart { text, .. } => text.map_or(Ok(0), |text| text.dim(0)),
            Self::Joined { text, .. } => Ok(text.len()),
            Self::Compact { text, .. } => Ok(text.map_or(0, CompactRows::count)),
        }
    }

    /// Returns all rows in one tensor, joining them if necessary.
    ///
    /// # Errors
    /// If there are no rows, or their widths differ.
    pub fn joined(&self) -> Result<JoinedRows<'_>> {
        match *self {
            Self::Joined { rows, text, steps } => {
                Ok(JoinedRows { rows: rows.clone(), text: text.into(), steps: steps.into() })
            }
            Self::Apart { text, steps } => {
                let first = text.map_or(Ok(0), |text| text.dim(0))? as u32;
                let counts = steps.iter().map(|step| step.dim(0)).collect::<Result<Vec<_>>>()?;
                let rows = Tensor::cat(&text.into_iter().chain(steps).collect::<Vec<_>>(), 0)?;
                Ok(JoinedRows::one_after_another(rows, first, counts))
            }
            Self::Compact { text, steps } => {
                let all = text.into_iter().chain(steps.iter().map(|step| &**step));
                let all = all.map(CompactRows::to_tensor).collect::<Result<Vec<_>>>()?;
                let first = text.map_or(0, CompactRows::count) as u32;
                let counts = steps.iter().map(|step| step.count()).collect();
                Ok(JoinedRows::one_after_another(Tensor::cat(&all, 0)?, first, counts))
            }
        }
    }
}

/// Rows of past tokens, all in one tensor.
#[derive(Debug)]
pub struct JoinedRows<'a> {
    /// All rows, `(M, W)`.
    pub rows: Tensor,
    text: Cow<'a, [u32]>,
    steps: Cow<'a, [(u32, u32)]>,
}

impl JoinedRows<'static> {
    /// Describes `rows`, which begin with `text` rows of texts. Then follow the rows of the
    /// decoding steps; `counts` has their number for each step.
    fn one_after_another(rows: Tensor, text: u32, counts: Vec<usize>) -> Self {
        let mut first = text;
        let steps = counts.into_iter().map(|count| {
            let step = (first, count as u32);
            first += count as u32;
            step
        });
        let steps = steps.collect();
        Self { rows, text: (0..text).collect(), steps }
    }
}

impl JoinedRows<'_> {
    /// Returns the indices of the rows of the tokens that `query` sees, in order. For `text` and
    /// `history`, see [`VisibleKeys::Past`].
    pub fn visible_to<'b>(
        &'b self,
        query: usize,
        text: &[Range<usize>],
        history: &'b [Vec<u32>],
    ) -> impl Iterator<Item = u32> + 'b {
        let read = text.get(query).cloned().unwrap_or_default();
        let stepped = self.steps.iter().zip(history).map(move |(step, rows)| (step.0, rows[query]));
        let stepped = stepped.filter(|&(_, row)| row != ABSENT).map(|(first, row)| first + row);
        self.text[read].iter().copied().chain(stepped)
    }
}

impl VisibleKeys<'_> {
    /// Returns the number of keys that `query` sees, before any sparse pattern.
    ///
    /// # Panics
    /// If there is no query with this index.
    #[must_use]
    pub fn keys(&self, query: usize) -> usize {
        match self {
            Self::Source { rows, .. } => rows[query].len(),
            Self::Past { text, history, .. } => {
                let stepped = history.iter().filter(|rows| rows[query] != ABSENT).count();
                text.get(query).map_or(0, ExactSizeIterator::len) + stepped
            }
        }
    }
}
