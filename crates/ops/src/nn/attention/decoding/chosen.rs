//! Selection of the keys that a query sees in its past, for example by a sparse pattern. The past
//! is the cached keys of its sequence, up to its own token.

use crate::spec::{DualChunk, Sight, Sparse, merge};
use std::ops::Range;

/// The keys that a query sees among the keys of its past.
#[derive(Default)]
pub(super) struct Chosen {
    /// Number of keys in the past of the query. The last of them belongs to the query's own token.
    pub(super) keys: usize,
    /// Ascending ranges of the keys that at least one head sees. Exactly the keys in these ranges
    /// are gathered (read from the cache).
    pub(super) ranges: Vec<Range<usize>>,
    /// Position in the past of each gathered key; empty if all keys are gathered.
    pub(super) positions: Vec<usize>,
    /// For each head and each of `positions`, whether the key there is hidden from the head:
    /// `(H, positions)`. Empty if all heads see the same keys.
    pub(super) hidden: Vec<bool>,
    /// Chunks of dual chunk attention; `None` if the query has only one rotation. With chunks, the
    /// query is rotated by several positions, and the chunk of a key decides which rotation
    /// applies.
    pub(super) dual_chunk: Option<DualChunk>,
}

impl Chosen {
    pub(super) fn choose(&mut self, sparse: Option<Sparse>, heads: usize, keys: usize) {
        self.keys = keys;
        self.ranges.clear();
        self.positions.clear();
        self.hidden.clear();
        let Some(rule) = sparse.filter(|_| keys > 0) else {
            self.ranges.push(0..keys);
            return;
        };
        // Heads see different keys only if there are random blocks.
        let heads = if rule.random > 0 { heads } else { 1 };
        let of_head = |head| {
            let mut ranges = Vec::new();
            Sight::for_few(rule, true, head, keys).keys_of(keys - 1..keys, 0..keys, &mut ranges);
            ranges
        };
        let of_heads: Vec<Vec<Range<usize>>> = (0..heads).map(of_head).collect();
        self.ranges.extend(of_heads.iter().flatten().cloned());
        merge(&mut self.ranges);
        self.positions.extend(self.ranges.iter().cloned().flatten());
        if heads > 1 {
            for ranges in &of_heads {
                let mut ranges = ranges.iter().peekable();
                self.hidden.extend(self.positions.iter().map(|&position| {
                    while ranges.next_if(|range| range.end <= position).is_some() {}
                    ranges.peek().is_none_or(|range| position < range.start)
                }));
            }
        }
    }

    /// Returns the position in the past of the gathered key `index`.
    #[inline(always)]
    pub(super) fn position(&self, index: usize) -> usize {
        self.positions.get(index).copied().unwrap_or(index)
    }

    /// Returns the index of the query's rotation that applies to the gathered key `index`.
    #[inline(always)]
    pub(super) fn rotation(&self, index: usize) -> usize {
        self.dual_chunk.map_or(0, |chunks| chunks.rotation(self.keys - 1, self.position(index)))
    }
}
