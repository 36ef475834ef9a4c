//! Matrix whose rows are divided among blocks, and gradient descent on pairs of rows.

use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use crate::lanes::{Lanes, add, add_each_other, dot, fill, groups, logistic};

/// Number of blocks of a matrix, which is also the largest number of threads that can work at once.
/// It is fixed, so that no result depends on the number of threads.
pub(super) const BLOCKS: usize = 16;

/// The loss is computed for one of this many pairs. It is only reported; the gradient steps do not
/// need it.
const LOSS_OF: usize = 16;

/// A matrix whose rows are stored in 16 blocks: row r is stored as row r / 16 of block r mod 16.
/// Rows are sorted by the frequency of their words, so each block gets the same share of the
/// frequent words.
#[derive(Debug, Clone)]
pub(super) struct Blocks {
    /// Rows of each block, one after another; each row has `groups` groups of numbers.
    pub(super) blocks: Vec<Vec<Lanes>>,
    /// Number of groups of a row.
    pub(super) groups: usize,
}

/// A pair of a row of the matrix of input vectors and a row of the matrix of output vectors. A flag
/// says whether the rows belong together; if not, the output row is a negative sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pair {
    input: u32,
    /// Twice the output row, plus 1 if the rows belong together.
    output: u32,
}

impl Pair {
    /// Makes a pair from the indices of its rows in their blocks.
    #[inline(always)]
    pub(super) fn new(input: u32, output: u32, belong_together: bool) -> Self {
        Self { input, output: output << 1 | u32::from(belong_together) }
    }
}

/// Returns the block of a row, and the row's index within it.
#[inline(always)]
pub(super) fn place(row: u32) -> (usize, u32) {
    (row as usize % BLOCKS, row / BLOCKS as u32)
}

impl Blocks {
    /// Makes a matrix of `rows` rows and `dimensions` columns from `value(row, column)`.
    pub(super) fn new(
        rows: usize,
        dimensions: usize,
        value: impl Fn(usize, usize) -> f32 + Sync,
    ) -> Self {
        let groups = groups(dimensions);
        let block = |block: usize| {
            let rows = (block..rows).step_by(BLOCKS);
            let mut lanes = vec![Lanes::default(); rows.len() * groups];
            for (lanes, row) in lanes.chunks_exact_mut(groups).zip(rows) {
                fill(lanes, (0..dimensions).map(|column| value(row, column)));
            }
            lanes
        };
        Self { blocks: (0..BLOCKS).into_par_iter().map(block).collect(), groups }
    }

    /// Returns a row of the matrix.
    #[inline(always)]
    pub(super) fn row(&self, row: u32) -> &[Lanes] {
        let (block, row) = place(row);
        &self.blocks[block][row as usize * self.groups..][..self.groups]
    }
}

/// Makes a gradient step on each pair. `pairs(i, j)` returns slices of pairs, whose rows are in
/// input block i and output block j. Returns the sum of the losses of every sixteenth pair, and the
/// number of these pairs.
///
/// In round r, input block i is combined with output block (i + r) mod 16. So no two threads share
/// a row, and the order in which threads run does not change the result.
pub(super) fn descend<'a, I: Iterator<Item = &'a [Pair]>>(
    inputs: &mut [Vec<Lanes>],
    outputs: &mut Blocks,
    pairs: impl Fn(usize, usize) -> I + Sync,
    rate: f32,
) -> (f64, u64) {
    let groups = outputs.groups;
    let mut total = (0.0, 0);
    for round in 0..BLOCKS {
        let block = |(index, (input, output)): (usize, (&mut Vec<Lanes>, &mut Vec<Lanes>))| {
            let mut sum = (0.0, 0);
            for pairs in pairs(index, (index + round) % BLOCKS) {
                let block = BlockPairs { input, output, groups, pairs, rate };
                let (loss, count) = Arch::new().dispatch(block);
                sum = (sum.0 + loss, sum.1 + count);
            }
            sum
        };
        let work = inputs.par_iter_mut().zip(outputs.blocks.par_iter_mut()).enumerate();
        let sums: Vec<(f64, u64)> = work.with_max_len(1).map(block).collect();
        // Losses are added in the order of the blocks, so that the sum is the same each time.
        total = sums.iter().fold(total, |total, sum| (total.0 + sum.0, total.1 + sum.1));
        outputs.blocks.rotate_left(1);
    }
    total
}

/// A block of input vectors, a block of output vectors, and the pairs of their rows on which
/// gradient steps are made.
struct BlockPairs<'a> {
    input: &'a mut [Lanes],
    output: &'a mut [Lanes],
    groups: usize,
    pairs: &'a [Pair],
    rate: f32,
}

impl WithSimd for BlockPairs<'_> {
    type Output = (f64, u64);

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> Self::Output {
        let Self { input, output, groups, pairs, rate } = self;
        let (mut loss, mut count) = (0.0, 0);
        for (index, pair) in pairs.iter().enumerate() {
            let together = pair.output & 1 == 1;
            let input = &mut input[pair.input as usize * groups..][..groups];
            let output = &mut output[(pair.output >> 1) as usize * groups..][..groups];
            let probability = step(simd, input, output, together, rate);
            if index % LOSS_OF == 0 {
                let of_truth = if together { probability } else { 1.0 - probability };
                loss -= f64::from(of_truth.max(f32::MIN_POSITIVE).ln());
                count += 1;
            }
        }
        (loss, count)
    }
}

/// Makes one gradient step on a pair of rows v and u (Mikolov et al. 2013, equation 4). The loss is
/// −ln σ(v·u) if the rows belong together, otherwise −ln σ(−v·u). Each row moves by
/// rate · (label − σ(v·u)) times the old value of the other row, where the label is 1 if the rows
/// belong together, otherwise 0. Returns σ(v·u).
#[inline(always)]
fn step<S: Simd>(
    simd: S,
    input: &mut [Lanes],
    output: &mut [Lanes],
    together: bool,
    rate: f32,
) -> f32 {
    let probability = logistic(dot(simd, input, output));
    let factor = rate * (f32::from(u8::from(together)) - probability);
    add_each_other(simd, input, output, factor);
    probability
}

/// Vectors that are added to the rows of a block.
pub(super) struct RowSums<'a> {
    /// Vectors to add to.
    pub(super) to: &'a mut [Lanes],
    /// Vectors to add.
    pub(super) from: &'a [Lanes],
    /// Pairs of row indices: for each pair, the row of `from` with the first index is added to the
    /// row of `to` with the second index.
    pub(super) rows: &'a [(u32, u32)],
    pub(super) groups: usize,
}

impl WithSimd for RowSums<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { to, from, rows, groups } = self;
        for (source, target) in rows {
            let to = &mut to[*target as usize * groups..][..groups];
            add(simd, to, &from[*source as usize * groups..][..groups]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lanes::numbers;

    #[test]
    fn a_step_follows_the_gradient() {
        let row = |seed: f32| {
            let mut row = vec![Lanes::default(); 2];
            fill(&mut row, (0..19).map(|i| (seed + i as f32).sin() * 0.5));
            row
        };
        for together in [true, false] {
            let (v, u) = (row(1.0), row(2.5));
            let loss = |v: &[f64], u: &[f64]| {
                let score: f64 = v.iter().zip(u).map(|(v, u)| v * u).sum();
                let signed = if together { score } else { -score };
                (1.0 + (-signed).exp()).ln()
            };
            let exact = |row: &[Lanes]| numbers(row, 19).map(f64::from).collect::<Vec<f64>>();
            let (before_v, before_u) = (exact(&v), exact(&u));
            let (mut after_v, mut after_u, rate) = (v, u, 0.125);
            step(pulp::Scalar, &mut after_v, &mut after_u, together, rate);
            for i in 0..19 {
                let slope = |of_v: bool| {
                    let at = |shift: f64| {
                        let (mut v, mut u) = (before_v.clone(), before_u.clone());
                        if of_v {
                            v[i] += shift
                        } else {
                            u[i] += shift
                        }
                        loss(&v, &u)
                    };
                    (at(1e-6) - at(-1e-6)) / 2e-6
                };
                let moved_v = exact(&after_v)[i] - before_v[i];
                let moved_u = exact(&after_u)[i] - before_u[i];
                assert!((moved_v + f64::from(rate) * slope(true)).abs() < 1e-6);
                assert!((moved_u + f64::from(rate) * slope(false)).abs() < 1e-6);
            }
        }
    }

    #[test]
    fn rounds_meet_every_pair_of_blocks_once() {
        let value = |row: usize, column: usize| ((row * 7 + column * 3) % 11) as f32 * 0.1 - 0.5;
        let (mut inputs, mut outputs) = (Blocks::new(48, 4, value), Blocks::new(48, 4, value));
        let before = outputs.clone();
        let pairs = [Pair::new(2, 1, true)];
        let (_, count) =
            descend(&mut inputs.blocks, &mut outputs, |_, _| std::iter::once(&pairs[..]), 0.1);
        assert_eq!(count, (BLOCKS * BLOCKS) as u64);
        for row in 0..48 {
            let moved = outputs.row(row)[0].0 != before.row(row)[0].0;
            assert_eq!(moved, row / 16 == 1, "row {row} is in its place");
        }
    }
}
