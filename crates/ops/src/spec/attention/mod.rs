//! Settings of attention, and the keys that queries see in decoding.

pub(super) mod dual_chunk;
#[cfg(feature = "kinds")]
pub(crate) mod kinds;
pub(super) mod sparse;

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
    /// Heads of the layer.
    pub shape: AttentionShape,
    /// Number of tokens of each query sequence; they sum to the rows of the query.
    pub query_lengths: Arc<[usize]>,
    /// Number of tokens of each key sequence, one for each query sequence.
    pub key_lengths: Arc<[usize]>,
    /// True if a query sees no key after its own position.
    pub causal: bool,
    /// Keys among these that a query sees; `None`: all. For self-attention.
    pub sparse: Option<Sparse>,
    /// Chunks by which queries are rotated; `None`: a query has one rotation. For causal
    /// self-attention, whose queries then have [`DualChunk::ROTATIONS`] times as many columns: all
    /// heads in the first rotation, then all heads in the next.
    pub dual_chunk: Option<DualChunk>,
    /// Position of the first query of each sequence among its keys: 0 except for decoding with a
    /// cache.
    pub query_start: usize,
    /// ALiBi's slope for each head: `-slope · |i - j|` is added to a score (Press et al. 2022).
    pub slopes: Option<Arc<[f64]>>,
    /// Dropout on the attention weights.
    pub dropout: Dropout,
    /// Rounding of the operands of the products, forward and backward. Operands of short sequences
    /// are not rounded: rounding and packing would take longer than the product.
    pub products: Products,
}

impl AttentionSpec {
    /// Full self-attention over sequences of these lengths, in f32 and without dropout.
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

    /// Number of rotations of each query.
    #[must_use]
    pub fn rotations(&self) -> usize {
        self.dual_chunk.map_or(1, |_| DualChunk::ROTATIONS)
    }

    /// Width of the queries in packed projections, in all their rotations.
    #[must_use]
    pub fn queries_width(&self) -> usize {
        self.shape.query_width().saturating_mul(self.rotations())
    }

    /// Number of visible pairs of a query and a key, over all sequences and heads. Each takes a
    /// product of the width of a head for its score, and another to weight the value.
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
    /// Spec with one head and no sequences.
    pub(crate) fn single_head() -> Self {
        Self::new(AttentionShape::with_heads(1, 1), [])
    }
}

/// Index in the dropout mask for (query row, head, key position).
///
/// Defined once, because the composed path must drop the same weights.
pub(crate) fn mask_index(
    query_row: usize,
    heads: usize,
    head: usize,
    longest_key: usize,
    key: usize,
) -> usize {
    (query_row * heads + head) * longest_key + key
}

/// Row of a token that a query does not see.
pub const ABSENT: u32 = u32::MAX;

/// Keys and values that each query sees.
#[derive(Debug, Clone, Copy)]
pub enum VisibleKeys<'a> {
    /// Tokens of a source: each query has a range of the rows of one tensor `(M, 2·K)`, with key
    /// and value side by side.
    Source {
        /// `(M, 2·K)`.
        key_value: &'a Tensor,
        /// Range of rows for each query.
        rows: &'a [Range<usize>],
    },
    /// Past tokens. The rows of a text that was read as a whole come first, if there is one; then
    /// token `j` of query `r` is row `history[j][r]` of step `j`.
    Past {
        /// Key and value of each token side by side, `2·K`.
        kept: CachedRows<'a>,
        /// Range of rows of text for each query; empty if no query has any.
        text: &'a [Range<usize>],
        /// For each token, the row for each query; [`ABSENT`] if the query does not see it.
        history: &'a [Vec<u32>],
        /// Bias `(H, Q, T)` added to the scores. The last columns of its first row are used, and
        /// the last column is for the last token that a query sees.
        bias: Option<&'a Tensor>,
        /// ALiBi's slope for each head, which multiplies the distance to the last token (Press et
        /// al. 2022).
        slopes: Option<&'a Arc<[f64]>>,
        /// Keys among these that the last token sees; `None`: all.
        sparse: Option<Sparse>,
        /// Chunks by which queries are rotated. With them, the query has [`DualChunk::ROTATIONS`]
        /// times as many columns, as in [`AttentionSpec::dual_chunk`].
        dual_chunk: Option<DualChunk>,
    },
}

/// Rows of past tokens in a [`Cache`](crate::Cache).
#[derive(Debug, Clone, Copy)]
pub enum CachedRows<'a> {
    /// Rows in separate tensors, as they were added.
    Apart {
        /// `(M, W)`: rows of texts that were read as a whole.
        text: Option<&'a Tensor>,
        /// `(R_j, W)` for each step.
        steps: &'a [Tensor],
    },
    /// Rows in a single tensor, some of which may be unused.
    Joined {
        /// `(M, W)`.
        rows: &'a Tensor,
        /// Row of each token of the texts.
        text: &'a [u32],
        /// First row of each step, and the number of its rows.
        steps: &'a [(u32, u32)],
    },
}

impl CachedRows<'_> {
    /// Number of steps to keep.
    #[must_use]
    pub fn steps(&self) -> usize {
        match self {
            Self::Apart { steps, .. } => steps.len(),
            Self::Joined { steps, .. } => steps.len(),
        }
    }

    /// All rows in one tensor, joined if necessary.
    ///
    /// # Errors
    /// If there are no rows, or their widths differ.
    pub fn joined(&self) -> Result<JoinedRows<'_>> {
        match *self {
            Self::Joined { rows, text, steps } => {
                Ok(JoinedRows { rows: rows.clone(), text: text.into(), steps: steps.into() })
            }
            Self::Apart { text, steps } => {
                let mut first = text.map_or(Ok(0), |text| text.dim(0))? as u32;
                let of_text: Vec<u32> = (0..first).collect();
                let mut places = Vec::with_capacity(steps.len());
                for step in steps {
                    let count = step.dim(0)? as u32;
                    places.push((first, count));
                    first += count;
                }
                let rows = Tensor::cat(&text.into_iter().chain(steps).collect::<Vec<_>>(), 0)?;
                Ok(JoinedRows { rows, text: of_text.into(), steps: places.into() })
            }
        }
    }
}

/// Rows of past tokens, all in one tensor.
#[derive(Debug)]
pub struct JoinedRows<'a> {
    /// `(M, W)`.
    pub rows: Tensor,
    text: Cow<'a, [u32]>,
    steps: Cow<'a, [(u32, u32)]>,
}

impl JoinedRows<'_> {
    /// Rows of the tokens that a query sees, in order; see [`VisibleKeys::Past`].
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
    /// Number of keys that a query may see.
    ///
    /// # Panics
    /// If there is no such query.
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
