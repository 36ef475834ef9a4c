//! Division of an update's micro-batches, and of the parameters, among processes.

use std::cmp::Reverse;
use std::ops::Range;

use taper_ops::{NORM_CHUNK, Parameter, ParameterStore};

use crate::Optimizer;

/// Positions at which the flat layout (the values of all parameters, one parameter after the other)
/// can be divided into pieces for processes.
///
/// The layout consists of segments. Each parameter that the optimizer needs as a whole is a segment
/// of its own, which must not be cut (divided). All successive parameters between two such segments
/// together form one segment, which can be cut.
///
/// The norm of the gradient is summed in chunks (ranges of [`NORM_CHUNK`] values) within each
/// segment. A cut is only allowed at the end of a segment or, in a segment that can be cut, at the
/// end of a chunk. So no chunk is divided, and the norm is the same for any number of processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layout {
    segments: Vec<Segment>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Segment {
    range: Range<usize>,
    may_be_cut: bool,
}

impl Layout {
    /// Layout of the parameters in `store`. `optimizer` decides which parameters must not be cut.
    pub(crate) fn new(store: &ParameterStore, optimizer: &dyn Optimizer) -> Self {
        let mut segments = Vec::new();
        let mut end = 0;
        let mut until = |start: usize, segments: &mut Vec<Segment>, next: usize| {
            if end < start {
                segments.push(Segment { range: end..start, may_be_cut: true });
            }
            end = next;
        };
        let needs_whole = |one: &&Parameter| !one.is_empty() && optimizer.needs_whole(one);
        for parameter in store.parameters().iter().filter(needs_whole) {
            let range = parameter.offset()..parameter.offset() + parameter.len();
            until(range.start, &mut segments, range.end);
            segments.push(Segment { range, may_be_cut: false });
        }
        until(store.len(), &mut segments, store.len());
        Self { segments }
    }

    /// Number of values of all parameters.
    fn len(&self) -> usize {
        self.segments.last().map_or(0, |last| last.range.end)
    }

    /// Allowed position of a cut that is nearest to `place`.
    fn nearest_cut(&self, place: usize) -> usize {
        let number = self.segments.partition_point(|segment| segment.range.end <= place);
        let Some(Segment { range, may_be_cut }) = self.segments.get(number) else { return place };
        let step = if *may_be_cut { NORM_CHUNK } else { range.len() };
        let steps = (place - range.start + step / 2) / step;
        range.end.min(range.start + steps * step)
    }

    /// Returns the parts of the segments that lie within `range`, as ranges relative to the start
    /// of `range`.
    pub(crate) fn within(&self, range: &Range<usize>) -> Vec<Range<usize>> {
        let part = |segment: &Segment| {
            let start = segment.range.start.max(range.start);
            let end = segment.range.end.min(range.end);
            (start < end).then(|| start - range.start..end - range.start)
        };
        self.segments.iter().filter_map(part).collect()
    }
}

/// Bucket of the flat layout (a range that is exchanged at once), with its division into one piece
/// for each process. The optimizer of this process updates the piece with the index `rank`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Start of each process's piece, by rank, and end of the last piece. All of them are positions
    /// at which a cut is allowed.
    bounds: Vec<usize>,
    rank: usize,
}

/// Divides the parameters into buckets of about `values` values each. Returns the buckets for the
/// process `rank` of `size` processes. Each process has a piece of each bucket, so that all
/// processes send and receive equally much when the gradients of a bucket are ready. If there is
/// only one process, there is only one bucket.
pub(crate) fn buckets(layout: &Layout, rank: usize, size: usize, values: usize) -> Vec<Piece> {
    let chunks = if size == 1 { usize::MAX } else { values.div_ceil(NORM_CHUNK).max(1) };
    let values = chunks.saturating_mul(NORM_CHUNK);
    let starts = (0..layout.len().max(1)).step_by(values);
    let mut starts: Vec<usize> = starts.map(|start| layout.nearest_cut(start)).collect();
    starts.dedup();
    let ends = starts.iter().copied().skip(1).chain([layout.len()]);
    let buckets = starts.iter().zip(ends).filter(|&(&start, end)| start < end || start == 0);
    buckets.map(|(&start, end)| Piece::new(layout, start..end, rank, size)).collect()
}

impl Piece {
    /// Divides the range `bucket` among `size` processes; the piece with the index `rank` is that
    /// of this process. A cut must be allowed at both ends of `bucket`.
    pub(crate) fn new(layout: &Layout, bucket: Range<usize>, rank: usize, size: usize) -> Self {
        let chunks = bucket.len().div_ceil(NORM_CHUNK);
        let bound = |rank: usize| {
            let even = bucket.start + rank * chunks / size * NORM_CHUNK;
            layout.nearest_cut(even).clamp(bucket.start, bucket.end)
        };
        Self { bounds: (0..=size).map(bound).collect(), rank }
    }

    /// Range of the whole bucket in the flat layout.
    pub(crate) fn bucket(&self) -> Range<usize> {
        self.bounds[0]..self.bounds[self.bounds.len() - 1]
    }

    /// Range of this process's piece in the flat layout.
    pub(crate) fn own_range(&self) -> Range<usize> {
        self.range_of(self.rank)
    }

    /// Ranges of all processes' pieces, by rank.
    pub(crate) fn all(&self) -> impl Iterator<Item = Range<usize>> {
        (0..self.bounds.len() - 1).map(|rank| self.range_of(rank))
    }

    fn range_of(&self, rank: usize) -> Range<usize> {
        self.bounds[rank]..self.bounds[rank + 1]
    }
}

/// Range of an update's micro-batches that the process `rank` of `size` processes computes.
/// `leaves`: number of micro-batches, which are the leaves of the binary tree along which gradients
/// are added.
pub(crate) fn leaves_of(leaves: usize, rank: usize, size: usize) -> Range<usize> {
    rank * leaves / size..(rank + 1) * leaves / size
}

/// Returns both halves of a range of leaves. If their lengths differ, the first one is longer. They
/// are the two subtrees of the tree whose leaves are this range.
pub(crate) fn halves(leaves: &Range<usize>) -> [Range<usize>; 2] {
    let middle = leaves.start + leaves.len().div_ceil(2);
    [leaves.start..middle, middle..leaves.end]
}

/// Divides the range `leaves` into complete subtrees of the binary tree whose leaves are the range
/// `tree`. There are as few subtrees as possible. Returns the range of the leaves of each subtree,
/// in order.
pub(crate) fn nodes_of(tree: Range<usize>, leaves: &Range<usize>) -> Vec<Range<usize>> {
    if leaves.start <= tree.start && tree.end <= leaves.end {
        return vec![tree];
    }
    if tree.len() <= 1 || tree.end <= leaves.start || leaves.end <= tree.start {
        return Vec::new();
    }
    halves(&tree).into_iter().flat_map(|half| nodes_of(half, leaves)).collect()
}

/// Orders the micro-batches of an update, which have these costs, as the leaves of the binary tree
/// along which gradients are summed. Returns the indices of the micro-batches, from the first leaf
/// to the last. Both halves of each subtree cost about the same. Because each process computes
/// complete subtrees, the processes then have equal work. The order does not depend on the number
/// of processes. If all costs are equal, the order of micro-batches does not change.
///
/// In the order of decreasing cost, each micro-batch is added to the half with the lower sum of
/// costs so far (Graham 1969, "Bounds on Multiprocessing Timing Anomalies", section 5: the longest
/// processing time first). Then each half is divided in the same way.
#[must_use]
pub fn balanced(costs: &[u64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..costs.len()).collect();
    balance(costs, &mut order);
    order
}

fn balance(costs: &[u64], leaves: &mut [usize]) {
    leaves.sort_unstable();
    if leaves.len() <= 2 || leaves.iter().all(|&leaf| costs[leaf] == costs[leaves[0]]) {
        return;
    }
    leaves.sort_by_key(|&leaf| Reverse(costs[leaf]));
    let room = halves(&(0..leaves.len())).map(|half| half.len());
    let (mut of_half, mut cost) = ([Vec::new(), Vec::new()], [0, 0]);
    for &leaf in &*leaves {
        let has_room = [0, 1].map(|half| of_half[half].len() < room[half]);
        let half = usize::from(!has_room[0] || (has_room[1] && cost[1] < cost[0]));
        of_half[half].push(leaf);
        cost[half] += costs[leaf];
    }
    leaves.copy_from_slice(&of_half.concat());
    let (left, right) = leaves.split_at_mut(room[0]);
    balance(costs, left);
    balance(costs, right);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a layout. Each pair has the length of a segment, and whether the segment can be cut.
    fn layout(lengths: &[(usize, bool)]) -> Layout {
        let mut end = 0;
        let segment = |&(length, may_be_cut): &(usize, bool)| {
            end += length;
            Segment { range: end - length..end, may_be_cut }
        };
        Layout { segments: lengths.iter().map(segment).collect() }
    }

    /// Divides `layout` for several numbers of processes and sizes of buckets. Returns the pieces
    /// of all processes for each of these divisions.
    fn divisions(layout: &Layout) -> Vec<Vec<Range<usize>>> {
        let mut divisions = Vec::new();
        for size in [1, 2, 3, 4, 7] {
            for bucket in [1, 2 * NORM_CHUNK, 100 * NORM_CHUNK] {
                let all = buckets(layout, 0, size, bucket);
                assert!(size > 1 || all.len() == 1, "one process has all at once");
                let lasts = buckets(layout, size - 1, size, bucket);
                let own_ranges: Vec<_> = lasts.iter().map(Piece::own_range).collect();
                assert!(all.iter().map(|piece| piece.all().last().unwrap()).eq(own_ranges));
                divisions.push(all.iter().flat_map(Piece::all).collect());
            }
        }
        divisions
    }

    #[test]
    fn pieces_are_the_whole_and_end_where_chunks_end() {
        for total in [1, NORM_CHUNK, 3 * NORM_CHUNK + 5, 10 * NORM_CHUNK] {
            for pieces in divisions(&layout(&[(total, true)])) {
                let mut end = 0;
                for range in pieces {
                    assert_eq!(range.start, end);
                    assert!(range.end == total || range.end % NORM_CHUNK == 0);
                    end = range.end;
                }
                assert_eq!(end, total);
            }
        }
    }

    /// Checks that a segment that must not be cut is in one piece, and that the chunks of the norm
    /// are the same as for one process.
    #[test]
    fn what_must_stay_whole_is_in_one_piece() {
        let (long, short) = (5 * NORM_CHUNK + 3, 70);
        let layout = layout(&[
            (short, true),
            (long, false),
            (short, false),
            (long, true),
            (NORM_CHUNK, false),
            (1, false),
        ]);
        let chunks = |pieces: &[Range<usize>]| {
            let mut chunks: Vec<Range<usize>> = Vec::new();
            for piece in pieces {
                for part in layout.within(piece) {
                    let end = piece.start + part.end;
                    let starts = (piece.start + part.start..end).step_by(NORM_CHUNK);
                    chunks.extend(starts.map(|start| start..end.min(start + NORM_CHUNK)));
                }
            }
            chunks
        };
        let divisions = divisions(&layout);
        let expected = chunks(&divisions[0]);
        let mut cuts = 0;
        for pieces in &divisions {
            assert_eq!(chunks(pieces), expected);
            let inner = pieces.iter().filter(|piece| !piece.is_empty()).skip(1);
            for piece in inner {
                let uncut = layout.segments.iter().filter(|segment| !segment.may_be_cut);
                let mut ranges = uncut.map(|segment| segment.range.clone());
                assert!(ranges.all(|range| piece.start <= range.start || range.end <= piece.start));
                cuts += 1;
            }
        }
        assert!(cuts > 30, "{cuts}");
    }

    #[test]
    fn processes_get_micro_batches_that_cost_about_the_same() {
        assert_eq!(balanced(&[5; 7]), [0, 1, 2, 3, 4, 5, 6], "in their order where all are alike");
        assert!(balanced(&[]).is_empty());
        assert_eq!(balanced(&[3, 9]), [0, 1]);
        assert_eq!(balanced(&[10, 11, 14, 13]), [0, 2, 1, 3]);
        let mut imbalance = [0.0, 0.0];
        for update in 0..100_u64 {
            let cost = |leaf: u64| 1_900 + (update * 7_919 + leaf * 104_729) * 31 % 211;
            let costs: Vec<u64> = (0..8).map(cost).collect();
            let order = balanced(&costs);
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, [0, 1, 2, 3, 4, 5, 6, 7]);
            for (order, imbalance) in [&sorted, &order].into_iter().zip(&mut imbalance) {
                for size in [2, 4] {
                    let cost_of_rank =
                        |rank| leaves_of(8, rank, size).map(|leaf| costs[order[leaf]]).sum();
                    let shares: Vec<u64> = (0..size).map(cost_of_rank).collect();
                    let mean = shares.iter().sum::<u64>() as f64 / size as f64;
                    *imbalance += *shares.iter().max().unwrap() as f64 / mean - 1.0;
                }
            }
        }
        assert!(imbalance[1] < 0.3 * imbalance[0], "{imbalance:?}");
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
