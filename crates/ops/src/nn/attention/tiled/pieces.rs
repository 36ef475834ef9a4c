//! Selects the tiles (small blocks of scores) that are computed, and masks the keys in them that a
//! query does not see.

use super::super::layout::Span;
use super::STEP;
use super::passes::Region;
use crate::float::Float;
use crate::products::PANEL;
use crate::spec::{AttentionSpec, DualChunk, Sight, merge};
use std::ops::Range;

/// Part of the work of a task. In the forward pass, a task holds some queries and goes over keys.
/// In the backward pass, it holds some keys and goes over queries. A piece combines one panel of
/// the held rows with a range of the passing rows, over which the task goes. (A kernel processes
/// the rows of a panel together.) At least one pair of a held and a passing row is visible.
pub(super) struct Piece {
    pub(super) panel: usize,
    pub(super) passing: Range<usize>,
}

/// Returns the pieces for `panels` panels of held rows. The passing rows are to be read as rarely
/// as possible. So the pieces of all panels for one step of passing rows come before those for the
/// next step. `seen` must write the ranges of passing rows that a panel needs, ascending. The
/// passing rows of a piece begin at a multiple of [`PANEL`], and all of them belong to the same
/// step of [`STEP`] rows.
pub(super) fn pieces(
    panels: usize,
    mut seen: impl FnMut(usize, &mut Vec<Range<usize>>),
) -> Vec<Piece> {
    let (mut pieces, mut ranges) = (Vec::new(), Vec::new());
    for panel in 0..panels {
        seen(panel, &mut ranges);
        widen(&mut ranges);
        for range in &ranges {
            let mut start = range.start;
            while start < range.end {
                let end = (start + STEP - start % STEP).min(range.end);
                pieces.push(Piece { panel, passing: start..end });
                start = end;
            }
        }
    }
    pieces.sort_by_key(|piece| (piece.passing.start / STEP, piece.panel));
    pieces
}

/// Extends ranges to the left so that they begin at whole panels, and merges those that then touch.
fn widen(ranges: &mut Vec<Range<usize>>) {
    for range in ranges.iter_mut() {
        range.start -= range.start % PANEL;
    }
    merge(ranges);
}

/// Writes to `ranges` the keys that at least one of the queries at `positions` sees, ascending.
pub(super) fn keys_of(
    sight: Option<&Sight>,
    causal: bool,
    positions: Range<usize>,
    keys: usize,
    ranges: &mut Vec<Range<usize>>,
) {
    let keys = 0..if causal { keys.min(positions.end) } else { keys };
    match sight {
        Some(sight) => sight.keys_of(positions, keys, ranges),
        None => *ranges = vec![keys],
    }
}

/// Returns the number of pairs of a query and a key in the tiles that the forward pass computes for
/// a sequence, over all heads.
pub(in super::super) fn computed_pairs(spec: &AttentionSpec, span: &Span) -> u64 {
    let (mut pairs, mut ranges) = (0, Vec::new());
    for head in 0..spec.shape.heads {
        let sight = Sight::new(spec, head, span.keys);
        for first in (0..span.queries).step_by(PANEL) {
            let queries = first..(first + PANEL).min(span.queries);
            let positions = spec.query_start + queries.start..spec.query_start + queries.end;
            keys_of(sight.as_ref(), spec.causal, positions, span.keys, &mut ranges);
            widen(&mut ranges);
            let keys: usize = ranges.iter().map(ExactSizeIterator::len).sum();
            pairs += (queries.len() * keys) as u64;
        }
    }
    pairs
}

impl Region {
    fn keys(&self) -> Range<usize> {
        self.key..self.key + self.keys
    }

    /// Returns the positions of the tile's queries; `start` is the position of the sequence's first
    /// query.
    fn positions(&self, start: usize) -> Range<usize> {
        start + self.query..start + self.query + self.queries
    }

    /// Returns the range of rotations (dual chunk attention) that pairs in the tile need.
    pub(super) fn rotations(&self, chunks: DualChunk, start: usize) -> Range<usize> {
        let (queries, keys) = (self.positions(start), self.keys());
        let least = chunks.rotation(queries.start, keys.end - 1);
        least..chunks.rotation(queries.end - 1, keys.start) + 1
    }

    /// Copies the products for one rotation, `from`, to those pairs of `tile` that need this
    /// rotation. Both tiles have a row for each key and a column for each query.
    pub(super) fn take_rotation<T: Float>(
        &self,
        (chunks, rotation): (DualChunk, usize),
        start: usize,
        from: &[[T; PANEL]],
        tile: &mut [[T; PANEL]],
    ) {
        let positions = self.positions(start);
        for ((key, from), to) in self.keys().zip(from).zip(tile) {
            let queries = chunks.queries_of(key, rotation);
            let first = queries.start.max(positions.start);
            let end = queries.end.min(positions.end);
            if first < end {
                let lanes = first - positions.start..end - positions.start;
                to[lanes.clone()].copy_from_slice(&from[lanes]);
            }
        }
    }

    /// Sets the scores of hidden pairs to −∞, so that the softmax ignores them. The tile has a row
    /// for each key and a column for each query.
    pub(super) fn hide<T: Float>(&self, sight: &Sight, start: usize, tile: &mut [[T; PANEL]]) {
        if sight.sees_all(&self.positions(start), &self.keys()) {
            return;
        }
        let mut scratch = Vec::new();
        for (lane, query) in self.positions(start).enumerate() {
            sight.gaps(query, self.keys(), &mut scratch, |hidden| {
                for row in &mut tile[hidden.start - self.key..hidden.end - self.key] {
                    row[lane] = T::NEGATIVE_INFINITY;
                }
            });
        }
    }

    /// Sets hidden pairs to zero in two tiles, which have a row for each query and a column for
    /// each key.
    pub(super) fn clear<T: Float>(
        &self,
        sight: &Sight,
        start: usize,
        tiles: [&mut [[T; PANEL]]; 2],
    ) {
        if sight.sees_all(&self.positions(start), &self.keys()) {
            return;
        }
        let mut scratch = Vec::new();
        let [left, right] = tiles;
        for ((query, left), right) in self.positions(start).zip(left).zip(right) {
            sight.gaps(query, self.keys(), &mut scratch, |hidden| {
                let hidden = hidden.start - self.key..hidden.end - self.key;
                left[hidden.clone()].fill(T::default());
                right[hidden].fill(T::default());
            });
        }
    }
}
