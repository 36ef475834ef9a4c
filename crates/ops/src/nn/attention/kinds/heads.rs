//! Access to the heads of query, key and value that lie side by side in a row, and the division of
//! heads among parallel tasks.

use crate::nn::attention::layout::Columns;
use crate::nn::attention::tiled::products::{Rows, TileProducts};
use crate::products::Matrix;
use crate::profile::{longest_of, region};
use crate::shared::Write;
use rayon::prelude::*;
use std::ops::Range;

/// Layout of sequences whose rows have query, key and value side by side, each with all heads.
pub(super) trait PackedLayout: Sync {
    /// Description of one sequence, with its position in the packed rows (one for each real token).
    type Sequence: Sync;

    /// Returns the number of heads, and the width of a head.
    fn heads(&self) -> (usize, usize);

    fn sequences(&self) -> &[Self::Sequence];

    /// Returns the number of rows of a sequence.
    fn length(sequence: &Self::Sequence) -> usize;

    /// Returns the width of a row of the result.
    fn width(&self) -> usize {
        let (heads, width) = self.heads();
        heads * width
    }

    /// Returns the columns of the query (`part` 0), the key (1) or the value (2) in a row.
    fn columns(&self, part: usize) -> Columns {
        let width = self.width();
        Columns { stride: 3 * width, column: part * width }
    }

    /// Returns some rows of one head of the query (`part` 0), the key (1) or the value (2).
    fn rows<'a, T>(
        &self,
        qkv: &'a [T],
        part: usize,
        head: usize,
        rows: &Range<usize>,
    ) -> Rows<'a, T> {
        let (_, width) = self.heads();
        let at = self.columns(part).head(rows.start, head, width);
        Rows { values: qkv, at, count: rows.len(), width }
    }

    /// Calls `each` for all heads of each sequence that is not empty. A task is a group of heads of
    /// one sequence; `worker` makes a thread's working memory.
    fn for_heads<W>(
        &self,
        worker: impl Fn() -> W + Sync + Send,
        each: impl Fn(&mut W, &Self::Sequence, &Range<usize>) + Sync + Send,
    ) {
        let (sequences, (heads, _)) = (self.sequences(), self.heads());
        let groups = || head_groups(sequences.len(), heads);
        let sequences = sequences.iter().filter(|sequence| Self::length(sequence) > 0);
        let tasks: Vec<(&Self::Sequence, Range<usize>)> =
            sequences.flat_map(|sequence| groups().map(move |heads| (sequence, heads))).collect();
        let work = || tasks.iter().map(|(sequence, heads)| Self::length(sequence) * heads.len());
        region(longest_of(work), || {
            tasks.par_iter().with_max_len(1).for_each_init(worker, |worker, (sequence, heads)| {
                each(worker, sequence, heads);
            });
        });
    }
}

/// Divides `heads` heads into groups of neighbouring heads, the same for each of `sequences`
/// sequences. There are enough groups to give all threads tasks, but not more, because neighbouring
/// heads read the same pages of memory. Results must not depend on the groups.
fn head_groups(sequences: usize, heads: usize) -> impl Iterator<Item = Range<usize>> {
    let groups = match rayon::current_num_threads() {
        1 => 1,
        threads => (4 * threads).div_ceil(sequences.max(1)).min(heads),
    };
    (0..groups).map(move |group| group * heads / groups..(group + 1) * heads / groups)
}

impl<T> Rows<'_, T> {
    /// Returns the row with index `row`; its values must be contiguous.
    #[inline(always)]
    pub(super) fn row(&self, row: usize) -> &[T] {
        &self.values[self.at.offset + row * self.at.row..][..self.width]
    }
}

/// Products with an operand that is used only once: it is prepared for the product, and then
/// dropped.
pub(super) trait WeighedRows: TileProducts {
    /// Computes [`add_weighted`](TileProducts::add_weighted), with `rows` as the operand.
    fn weigh(
        &self,
        worker: &mut Self::Worker,
        weights: (&[Self::Value], Matrix),
        shape: (usize, usize),
        rows: Rows<'_, Self::Value>,
        sums: &mut [Self::Value],
        write: Write,
    ) {
        self.add_weighted(worker, weights, shape, (&self.summed(rows), 0), sums, write);
    }
}

impl<P: TileProducts> WeighedRows for P {}
