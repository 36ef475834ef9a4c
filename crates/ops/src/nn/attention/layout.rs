//! Positions of sequences and heads in packed matrices, and which sequences count as long.

use crate::float::Float;
use crate::products::Matrix;
use crate::shared::Shared;
use crate::spec::{AttentionShape, AttentionSpec};

/// If some pairs are masked: number of pairs of a query and a key from which on a sequence is
/// computed in tiles. Attention that keeps its weights needs six products instead of seven, and no
/// whole panels, so that within sentences it is five times as fast. But tiles skip masked pairs,
/// and are faster from this number on.
const LONG_MASKED: usize = 256 * 256;
/// If each query sees every key: number of pairs from which on a sequence is computed in tiles.
/// Tiles then do a fifth more work, but without them a step takes several times the memory.
const LONG: usize = 512 * 512;
/// Smallest number of queries of a sequence that is computed in tiles; fewer would leave a panel
/// partly empty.
const LONG_QUERIES: usize = 32;

/// Where a sequence is in the packed rows, and where its saved weights are.
#[derive(Clone, Copy)]
pub(super) struct Span {
    pub(super) query: usize,
    pub(super) queries: usize,
    pub(super) key: usize,
    pub(super) keys: usize,
    /// Index of the first of this sequence's `(H, queries, keys)` weights; not used if the sequence
    /// is long.
    pub(super) weights: usize,
    /// True if some query may see fewer than all keys.
    is_masked: bool,
    /// Largest number of keys for which a query needs only one rotation.
    chunk: usize,
}

/// True if attention of `queries` queries to `keys` keys keeps a weight for each pair for the
/// backward pass. If some pairs are masked (`is_masked`), the limit on the number of pairs is
/// lower.
#[must_use]
pub fn keeps_scores(queries: usize, keys: usize, is_masked: bool) -> bool {
    let pairs = if is_masked { LONG_MASKED } else { LONG };
    queries < LONG_QUERIES || queries.saturating_mul(keys) < pairs
}

impl Span {
    /// True if the sequence is computed in tiles. This is so if it is long, or if it has several
    /// chunks, because queries then need several rotations.
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

/// Columns of a projection in a packed matrix: the width of a row of the matrix, and the first
/// column.
#[derive(Clone, Copy)]
pub(super) struct Columns {
    pub(super) stride: usize,
    pub(super) column: usize,
}

impl Columns {
    /// Position of one head, in the rows from `row` on.
    pub(super) fn head(&self, row: usize, head: usize, head_width: usize) -> Matrix {
        Matrix::rows(self.stride).at(row * self.stride + self.column + head * head_width)
    }

    /// Writes zeros to `count` rows of the projection, from `row` on. Only the caller may use these
    /// rows.
    pub(super) fn clear<T: Float>(&self, to: Shared<T>, row: usize, count: usize, width: usize) {
        let zeros = vec![T::default(); width];
        for row in row..row + count {
            // SAFETY: the caller's promise.
            unsafe { to.write(row * self.stride + self.column, &zeros) };
        }
    }
}

/// Indices of query, key and value.
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

    /// Index of the head, of query, key or value (`part`), that belongs to the query head `head`.
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
