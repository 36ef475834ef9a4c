//! Who has which micro-batches, and which piece of the flat layout.

use std::ops::Range;

use taper_ops::NORM_CHUNK;

/// The piece of the flat layout that a process owns: its optimizer steps on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Where each process's piece begins, and the end of the last. At multiples of what the norm is
    /// summed in, so that its sums are those of one process.
    bounds: Vec<usize>,
    rank: usize,
}

impl Piece {
    /// The piece of process `rank` of `size`, of `total` parameters.
    pub(crate) fn new(total: usize, rank: usize, size: usize) -> Self {
        let chunks = total.div_ceil(NORM_CHUNK);
        let bound = |rank: usize| (rank * chunks / size * NORM_CHUNK).min(total);
        Self { bounds: (0..=size).map(bound).collect(), rank }
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
                let piece = Piece::new(total, 0, size);
                let mut end = 0;
                for range in piece.all() {
                    assert_eq!(range.start, end);
                    assert!(range.end == total || range.end % NORM_CHUNK == 0);
                    end = range.end;
                }
                assert_eq!(end, total);
                let own = Piece::new(total, size - 1, size).own();
                assert_eq!(Some(own), piece.all().last());
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
