//! What attention computes, and what the queries of decoding see.

use super::dropout::Dropout;
use crate::products::Products;
use candle_core::Tensor;
use std::ops::Range;
use std::sync::Arc;

/// What an attention layer computes, beside its inputs.
#[derive(Debug, Clone)]
pub struct AttentionSpec {
    /// Number of heads; the width is divided between them.
    pub heads: usize,
    /// Tokens of each query sequence; they sum to the rows of the query.
    pub query_lengths: Arc<[usize]>,
    /// Tokens of each key sequence, one for each query sequence.
    pub key_lengths: Arc<[usize]>,
    /// Whether a query sees no key after its own position.
    pub causal: bool,
    /// Position of the first query of each sequence among its keys: 0 but for decoding with a
    /// cache.
    pub query_start: usize,
    /// ALiBi's slope for each head: `-slope · |i - j|` is added to a score (Press et al. 2022).
    pub slopes: Option<Arc<[f64]>>,
    /// Dropout on the attention weights.
    pub dropout: Dropout,
    /// How the operands of the products are rounded, forward and backward. Those of short
    /// sequences are not: rounding and packing would take longer than the product.
    pub products: Products,
}

/// The element of the dropout mask for (query row, head, key position).
///
/// Stated once, because the composed path must drop the same weights.
pub(crate) fn mask_index(
    query_row: usize,
    heads: usize,
    head: usize,
    longest_key: usize,
    key: usize,
) -> usize {
    (query_row * heads + head) * longest_key + key
}

/// The row of a token that a query does not see.
pub const ABSENT: u32 = u32::MAX;

/// Where the keys and values lie that each query sees.
#[derive(Debug, Clone, Copy)]
pub enum Seen<'a> {
    /// Those of a source: for each query a range of the rows of one tensor `(M, 2·D)`, key and
    /// value side by side.
    Source {
        /// `(M, 2·D)`.
        key_value: &'a Tensor,
        /// One range for each query.
        rows: &'a [Range<usize>],
    },
    /// Those of the tokens so far: first the rows of a text that was read as a whole, where there
    /// is one; then token `j` of query `r` is row `history[j][r]` of `blocks[j]`.
    Past {
        /// `(M, 2·D)`, key and value side by side, and one range of its rows for each query.
        text: Option<(&'a Tensor, &'a [Range<usize>])>,
        /// `(R_j, 2·D)` for each token, key and value side by side.
        blocks: &'a [Tensor],
        /// For each token, one row for each query; [`ABSENT`] where the query does not see it.
        history: &'a [Vec<u32>],
        /// `(H, Q, T)`, added to the scores: of its first row the last columns, the last of which is
        /// for the last token that a query sees.
        bias: Option<&'a Tensor>,
        /// ALiBi's slope for each head, by which the distance to the last token counts (Press et
        /// al. 2022).
        slopes: Option<&'a Arc<[f64]>>,
    },
}

impl Seen<'_> {
    /// How many keys a query sees.
    ///
    /// # Panics
    /// When nothing is said of that query.
    #[must_use]
    pub fn keys(&self, query: usize) -> usize {
        match self {
            Self::Source { rows, .. } => rows[query].len(),
            Self::Past { text, history, .. } => {
                let stepped = history.iter().filter(|rows| rows[query] != ABSENT).count();
                text.map_or(0, |(_, rows)| rows[query].len()) + stepped
            }
        }
    }
}
