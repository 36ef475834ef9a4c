//! Who has which micro-batches, and which pieces of the flat layout.

use std::ops::Range;

use taper_ops::NORM_CHUNK;

/// A bucket of the flat layout, divided among the processes: the optimizer of each steps on its own
/// piece.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Where each process's piece begins, and the end of the last. At multiples of what the norm is
    /// summed in, so that its sums are those of one process.
    bounds: Vec<usize>,
    rank: usize,
}

/// The buckets of `total` parameters, of about so many values each, with the pieces of process
/// `rank` of `size`. Every process has a part of each bucket, so that all send and receive as much
/// while one bucket after the other becomes ready; one process has a single bucket.
pub(crate) fn buckets(total: usize, rank: usize, size: usize, values: usize) -> Vec<Piece> {
    let chunks = if size == 1 { usize::MAX } else { values.div_ceil(NORM_CHUNK).max(1) };
    let values = chunks.saturating_mul(NORM_CHUNK);
    let starts = (0..total.max(1)).step_by(values);
    starts
        .map(|start| Piece::new(start..total.min(start.saturating_add(values)), rank, size))
        .collect()
}

impl Piece {
    /// The piece of process `rank` of `size`, of the parameters in `bucket`, which begins where a
    /// chunk of the norm does.
    pub(crate) fn new(bucket: Range<usize>, rank: usize, size: usize) -> Self {
        let chunks = bucket.len().div_ceil(NORM_CHUNK);
        let bound =
            |rank: usize| (bucket.start + rank * chunks / size * NORM_CHUNK).min(bucket.end);
        Self { bounds: (0..=size).map(bound).collect(), rank }
    }

    /// All parameters of the bucket.
    pub(crate) fn bucket(&self) -> Range<usize> {
        self.bounds[0]..self.bounds[self.bounds.len() - 1]
    }

    /// The parameters of this process.
    pub(crate) fn own(&self) -> Range<usize> {
        self.of(self.rank)
    }

    /// The parameters of each process, in their order.
    pub(crate) fn all(&self) -> impl Iterator<Item = Range<usize>> {
        (0..self.bounds.len() - 1).map(|rank| self.of(rank))
    }

    fn of(&self, rank: usize) -> Range<usize> {
        self.bounds[rank]..self.bounds[rank + 1]
    }
}

/// The micro-batches of process `rank` of `size`, of `leaves` in an update.
pub(crate) fn leaves_of(leaves: usize, rank: usize, size: usize) -> Range<usize> {
    rank * leaves / size..(rank + 1) * leaves / size
}

/// The halves of a range of leaves, of which the first is the larger one: the shape of the tree.
pub(crate) fn halves(leaves: &Range<usize>) -> [Range<usize>; 2] {
    let middle = leaves.start + leaves.len().div_ceil(2);
    [leaves.start..middle, middle..leaves.end]
}

/// The largest subtrees of the tree over `tree` whose leaves are all in `own`, in order.
pub(crate) fn nodes_of(tree: Range<usize>, own: &Range<usize>) -> Vec<Range<usize>> {
    if own.start <= tree.start && tree.end <= own.end {
        return vec![tree];
    }
    if tree.len() <= 1 || tree.end <= own.start || own.end <= tree.start {
        return Vec::new();
    }
    halves(&tree).into_iter().flat_map(|half| nodes_of(half, own)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_the_whole_and_end_where_chunks_end() {
        for total in [1, NORM_CHUNK, 3 * NORM_CHUNK + 5, 10 * NORM_CHUNK] {
            for size in [1, 2, 3, 4, 7] {
                for bucket in [1, 2 * NORM_CHUNK, 100 * NORM_CHUNK] {
                    let all = buckets(total, 0, size, bucket);
                    let mut end = 0;
                    for range in all.iter().flat_map(Piece::all) {
                        assert_eq!(range.start, end);
                        assert!(range.end == total || range.end % NORM_CHUNK == 0);
                        end = range.end;
                    }
                    assert_eq!(end, total);
                    assert!(size > 1 || all.len() == 1, "one process has all at once");
                    let lasts = buckets(total, size - 1, size, bucket);
                    let own: Vec<_> = lasts.iter().map(Piece::own).collect();
                    assert!(all.iter().map(|piece| piece.all().last().unwrap()).eq(own));
                }
            }
        }
    }

    #[test]
    fn whole_subtrees_cover_what_a_process_has() {
        assert!(nodes_of(0..4, &(2..4)).iter().eq([&(2..4)]));
        assert!(nodes_of(0..6, &(0..3)).iter().eq([&(0..3)]));
        assert_eq!(nodes_of(0..6, &(2..4)), [2..3, 3..4]);
        for leaves in 1..20 {
            for size in 1..7 {
                let all: Vec<usize> = (0..size)
                    .flat_map(|rank| nodes_of(0..leaves, &leaves_of(leaves, rank, size)))
                    .flatten()
                    .collect();
                assert_eq!(all, (0..leaves).collect::<Vec<_>>(), "{leaves} {size}");
            }
        }
    }
}
