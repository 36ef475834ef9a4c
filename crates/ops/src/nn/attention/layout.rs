//! Positions of sequences and heads in packed matrices, and the distinction of long sequences.

use crate::float::Float;
use crate::products::Matrix;
use crate::shared::Shared;
use crate::spec::{AttentionShape, AttentionSpec};

/// Number of pairs of a query and a key from which a sequence is computed in tiles. With kept
/// weights, there are six products instead of seven and no whole panels, so that attention within
/// sentences is five times as fast. But tiles skip masked pairs, and are faster from this number
/// on.
const LONG_MASKED: usize = 256 * 256;
/// Number of pairs from which a sequence is computed in tiles if each query sees every key. Tiles
/// then do a fifth more work; without them a step takes several times the memory.
const LONG: usize = 512 * 512;
/// Number of queries from which a sequence is computed in tiles: fewer leave a panel empty.
const LONG_QUERIES: usize = 32;

/// Position of a sequence in the packed rows, and in the saved weights.
#[derive(Clone, Copy)]
pub(super) struct Span {
    pub(super) query: usize,
    pub(super) queries: usize,
    pub(super) key: usize,
    pub(super) keys: usize,
    /// Start of this sequence's `(H, queries, keys)` weights; not used for a long sequence.
    pub(super) weights: usize,
    /// Whether some query may see fewer than all keys.
    is_masked: bool,
    /// Largest number of keys for which queries have one rotation.
    chunk: usize,
}

/// Whether attention of `queries` queries to `keys` keys keeps a weight for each pair for the
/// backward pass. With a mask, the limit of pairs is lower.
#[must_use]
pub fn keeps_scores(queries: usize, keys: usize, is_masked: bool) -> bool {
    let pairs = if is_masked { LONG_MASKED } else { LONG };
    queries < LONG_QUERIES || queries.saturating_mul(keys) < pairs
}

impl Span {
    /// Whether attention is computed in tiles: for long sequences, and for those of several chunks,
    /// because each chunk needs a rotation of the queries.
    pub(super) fn is_long(&self) -> bool {
        self.keys > self.chunk || !keeps_scores(self.queries, self.keys, self.is_masked)
    }

    fn weight_count(&self, heads: usize) -> usize {
        if self.is_long() { 0 } else { heads * self.queries * self.keys }
    }
}

/// Layout of attention on the host: [`AttentionSpec`] with the position of each sequence.
pub(super) struct Layout {
    pub(super) spec: AttentionSpec,
    pub(super) spans: Vec<Span>,
    pub(super) longest_key: usize,
}

/// Columns of a projection inside a packed matrix: the row stride, and the first column.
#[derive(Clone, Copy)]
pub(super) struct Columns {
    pub(super) stride: usize,
    pub(super) column: usize,
}

impl Columns {
    /// One head of the rows from `row` on.
    pub(super) fn head(&self, row: usize, head: usize, head_width: usize) -> Matrix {
        Matrix::rows(self.stride).at(row * self.stride + self.column + head * head_width)
    }

    /// Writes zeros to `count` rows of the projection, from `row` on, which only the caller uses.
    pub(super) fn clear<T: Float>(&self, to: Shared<T>, row: usize, count: usize, width: usize) {
        let zeros = vec![T::default(); width];
        for row in row..row + count {
            // SAFETY: the caller's promise.
            unsafe { to.write(row * self.stride + self.column, &zeros) };
        }
    }
}

/// Number of query, key and value.
pub(super) const QUERY: usize = 0;
pub(super) const KEY: usize = 1;
pub(super) const VALUE: usize = 2;

impl Layout {
    pub(super) fn new(spec: &AttentionSpec) -> Self {
        let is_masked = spec.causal || spec.sparse.is_some();
        let chunk = spec.dual_chunk.map_or(usize::MAX, |chunks| chunks.chunk);
        let mut next = Span { query: 0, queries: 0, key: 0, keys: 0, weights: 0, is_masked, chunk };
        let spans: Vec<Span> = spec
            .query_lengths
            .iter()
            .zip(spec.key_lengths.iter())
            .map(|(&queries, &keys)| {
                let span = Span { queries, keys, ..next };
                next.query += queries;
                next.key += keys;
                next.weights += span.weight_count(spec.shape.heads);
                span
            })
            .collect();
        let longest_key = spec.key_lengths.iter().copied().max().unwrap_or(0);
        Self { spec: spec.clone(), spans, longest_key }
    }

    pub(super) fn shape(&self) -> AttentionShape {
        self.spec.shape
    }

    /// Width of the result.
    pub(super) fn width(&self) -> usize {
        self.shape().query_width()
    }

    /// Head of query, key or value that a given head of queries reads.
    pub(super) fn head_of(&self, part: usize, head: usize) -> usize {
        if part == QUERY { head } else { self.shape().key_value_head(head) }
    }

    pub(super) fn rows(&self) -> usize {
        self.spans.last().map_or(0, |span| span.query + span.queries)
    }

    pub(super) fn weight_count(&self) -> usize {
        self.spans.last().map_or(0, |span| span.weights + span.weight_count(self.shape().heads))
    }

    pub(super) fn long_spans(&self) -> impl Iterator<Item = &Span> {
        self.spans.iter().filter(|span| span.is_long())
    }

    pub(super) fn scale<T: Float>(&self) -> T {
        T::cast(self.shape().scale)
    }
}
