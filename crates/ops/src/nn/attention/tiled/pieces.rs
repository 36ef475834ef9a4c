//! Which tiles there are to compute, and what of them is hidden.

use super::STEP;
use super::passes::Region;
use crate::float::Float;
use crate::products::PANEL;
use crate::spec::{Sight, merge};
use std::ops::Range;

/// A panel of rows, and some that pass by and are seen by one of them, or see one.
pub(super) struct Piece {
    pub(super) panel: usize,
    pub(super) passing: Range<usize>,
}

/// The pieces of so many panels, in the order in which what passes by is fetched least often: all
/// panels of a step, then those of the next. `seen` gives the ranges that pass by a panel,
/// ascending; here they begin at whole panels and end with a step.
pub(super) fn pieces(
    panels: usize,
    mut seen: impl FnMut(usize, &mut Vec<Range<usize>>),
) -> Vec<Piece> {
    let (mut found, mut ranges) = (Vec::new(), Vec::new());
    for panel in 0..panels {
        seen(panel, &mut ranges);
        for range in ranges.iter_mut() {
            range.start -= range.start % PANEL;
        }
        merge(&mut ranges);
        for range in &ranges {
            let mut start = range.start;
            while start < range.end {
                let end = (start + STEP - start % STEP).min(range.end);
                found.push(Piece { panel, passing: start..end });
                start = end;
            }
        }
    }
    found.sort_by_key(|piece| (piece.passing.start / STEP, piece.panel));
    found
}

impl Region {
    fn keys(&self) -> Range<usize> {
        self.key..self.key + self.keys
    }

    /// The positions of the queries, the first of the sequence being at `start`.
    fn positions(&self, start: usize) -> Range<usize> {
        start + self.query..start + self.query + self.queries
    }

    /// Of a tile with a row for each key and a lane for each query, takes the scores of what is not
    /// seen out of the softmax.
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

    /// Of tiles with a row for each query and a lane for each key, clears what is not seen.
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
