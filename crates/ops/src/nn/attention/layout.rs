//! Positions of sequences and heads in packed matrices (which have one row for each real token),
//! and which sequences are long.

use crate::float::Float;
use crate::products::Matrix;
use crate::shared::Shared;
use crate::spec::{AttentionShape, AttentionSpec};

/// Smallest number of pairs of a query and a key for which a sequence with masked pairs is computed
/// in tiles (small blocks of scores). The alternative is attention that keeps its weights. It needs
/// six matrix products instead of seven, and does not round numbers of rows up to whole panels (the
/// 32 rows that a kernel processes together). For sequences as short as sentences, it is five times
/// as fast as tiles. But tiles skip masked pairs, and are faster for this number of pairs and more.
const LONG_MASKED: usize = 256 * 256;
/// Smallest number of pairs for which a sequence is computed in tiles, if each query sees every
/// key. Tiles then take a fifth more work, but without them a training step would take several
/// times the memory.
const LONG: usize = 512 * 512;
/// Smallest number of queries in a sequence that is computed in tiles. Fewer queries would leave a
/// panel partly empty.
const LONG_QUERIES: usize = 32;

/// Position of a sequence in the packed rows, and of its saved attention weights.
#[derive(Clone, Copy)]
pub(super) struct Span {
    pub(super) query: usize,
    pub(super) queries: usize,
    pub(super) key: usize,
    pub(super) keys: usize,
    /// Index of the first of this sequence's weights, `(H, queries, keys)`, among all saved
    /// weights; not used if the sequence is long.
    pub(super) weights: usize,
    /// Whether the mask can hide keys from queries.
    is_masked: bool,
    /// Up to this number of keys, each query needs only one rotation. It is the length of a chunk
    /// in dual chunk attention, otherwise [`usize::MAX`].
    chunk: usize,
}

/// Whether attention of `queries` queries to `keys` keys keeps the weight of each pair for the
/// backward pass. Otherwise it computes in tiles. `is_masked`: whether some pairs are masked. If
/// so, tiles are used from a smaller number of pairs on.
#[must_use]
pub fn keeps_scores(queries: usize, keys: usize, is_masked: bool) -> bool {
    let pairs = if is_masked { LONG_MASKED } else { LONG };
    queries < LONG_QUERIES || queries.saturating_mul(keys) < pairs
}

impl Span {
    /// Whether the sequence is computed in tiles. This is so for a long sequence. It is also so for
    /// a sequence with several chunks (dual chunk attention), because its queries need several
    /// rotations.
    pub(super) fn is_long(&self) -> bool {
        self.keys > self.chunk || !keeps_scores(self.queries, self.keys, self.is_masked)
    }

    fn weight_count(&self, heads: usize) -> usize {
        if self.is_long() { 0 } else { heads * self.queries * self.keys }
    }
}

/// Layout of attention on the host: the settings, and the position of each sequence.
pub(super) struct Layout {
    pub(super) spec: AttentionSpec,
    pub(super) spans: Vec<Span>,
    pub(super) longest_key: usize,
}

/// Columns of queries, keys or values in a packed matrix: the width of a row of the matrix, and the
/// index of the first column.
#[derive(Clone, Copy)]
pub(super) struct Columns {
    pub(super) stride: usize,
    pub(super) column: usize,
}

impl Columns {
    /// Describes the elements of one head, in the rows from `row` on.
    pub(super) fn head(&self, row: usize, head: usize, head_width: usize) -> Matrix {
        Matrix::rows(self.stride).at(row * self.stride + self.column + head * head_width)
    }

    /// Writes zeros to the `width` columns in `count` rows, from `row` on. No other thread must use
    /// these elements at the same time.
    pub(super) fn clear<T: Float>(&self, to: Shared<T>, row: usize, count: usize, width: usize) {
        let zeros = vec![T::default(); width];
        for row in row..row + count {
            // SAFETY: as the caller promises.
            unsafe { to.write(row * self.stride + self.column, &zeros) };
        }
    }
}

/// Indices of query, key and value in arrays of three.
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

    /// Returns the width of the result.
    pub(super) fn width(&self) -> usize {
        self.shape().query_width()
    }

    /// Returns the index of the head of queries, keys or values (`part`) that the query head `head`
    /// uses.
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
