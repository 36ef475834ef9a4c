//! Divides matrix products into blocks that fit in caches. This is for kernels that pack their
//! operands (copy them to the order in which the kernel reads them).
//!
//! The right operand is packed in panels of 32 columns. It is packed as a whole, unless it is as
//! large as the matrix of a large vocabulary; then it is packed a piece at a time. The left operand
//! is packed in blocks of rows that fit in the second-level cache. A panel of the right operand, a
//! few hundred values deep, stays in the first two cache levels while it is multiplied by all rows
//! of a block.

use super::job::Job;
use super::operand::{DEPTH, Line, Operand, PANEL};
use super::packed::Packed;
use super::packing::{Packing, pack};
use super::scratch::{RIGHT, with_scratch};
use super::{Finish, Threads};
use crate::profile::{even, region};
use crate::shared::{Shared, Write};
use rayon::prelude::*;
use std::ops::Range;

/// A product with fewer multiply-adds than this uses one thread, because a second thread would cost
/// more time than it saves.
const WORTH_A_THREAD: usize = 1 << 20;

/// A result is wide if it has at least this many times as many columns as rows, counted in panels
/// of 32 columns or rows.
const WIDE: usize = 4;

/// Destination of the result: row-major, with the distance `stride` from row to row. If values are
/// replaced, the memory need not be initialised.
#[derive(Clone, Copy)]
pub(super) struct Destination {
    pub(super) values: Shared<f32>,
    pub(super) offset: usize,
    pub(super) stride: usize,
    pub(super) write: Write,
}

/// Number of stretches into which the summed dimension is divided if a product is deep, that is, if
/// this dimension is long. Two, four or eight threads can share the stretches evenly.
const STRETCHES: usize = 8;
/// Smallest length of the summed dimension for a product to be deep.
const DEEP: usize = 1024;
/// Largest number of results of a deep product. It is limited because a partial sum of each result
/// is stored for each stretch.
const DEEP_RESULTS: usize = 512 * 1024;

/// Largest number of values of the right operand that are packed at a time: 64 MiB of f32. If the
/// matrix of a vocabulary of 256,000 tokens were packed as a whole, a gigabyte would stay allocated
/// between products.
pub(crate) const LARGEST_PACK: usize = 1 << 24;

/// Number of results (rounded to whole rows) that `finish` gets at a time. `finish` is a function
/// that processes complete rows of the result, for example by adding a bias. This many results, and
/// the values that `finish` combines with them, fit in the first-level cache.
const FINISHED: usize = 4 * 1024;

/// Computes a product. Returns `true` if `finish` has been called for every row, while the row was
/// in the cache. Returns `false` if it has not been called at all.
///
/// # Safety
/// The destination has room for every row and column, and no other thread reads or writes it at the
/// same time. If `finish` is given, there are no gaps between rows in the destination.
pub(super) unsafe fn product(
    left: &Operand<'_>,
    right: &Operand<'_>,
    to: Destination,
    (packing, threads): (Packing, Threads),
    finish: Option<Finish<'_, f32>>,
) -> bool {
    if threads == Threads::All && left.depth >= DEEP && left.count * right.count <= DEEP_RESULTS {
        // SAFETY: as the caller promises.
        unsafe { deep_product(left, right, to, packing) };
        return false;
    }
    if right.count * right.depth > LARGEST_PACK {
        // SAFETY: as the caller promises.
        unsafe { product_in_pieces(left, right, to, (packing, threads), LARGEST_PACK) };
        return false;
    }
    // SAFETY: as the caller promises.
    unsafe { shallow_product(left, right, to, (packing, threads), finish) }
}

/// Computes a product, and packs the right operand in pieces of about `values` values, one after
/// the other. A piece consists of some of the columns. If the depth (the length of the summed
/// dimension) is larger than the number of columns, a piece is a stretch of the depth instead. The
/// depth is divided only where [`Job::run`] divides it anyway, so the result has the same bits.
///
/// # Safety
/// As for [`product`].
unsafe fn product_in_pieces(
    left: &Operand<'_>,
    right: &Operand<'_>,
    to: Destination,
    how @ (packing, _): (Packing, Threads),
    values: usize,
) {
    if right.count >= right.depth {
        let panels = (values / (PANEL * right.depth.max(1))).max(1);
        for first in (0..right.panels()).step_by(panels) {
            let some = first..(first + panels).min(right.panels());
            let to = Destination { offset: to.offset + first * PANEL, ..to };
            // SAFETY: as the caller promises, for these columns.
            unsafe { shallow_product(left, &right.narrow(&some), to, how, None) };
        }
        return;
    }
    let block = packing.block().1 * DEPTH;
    let depth = (values / right.count.max(1) / block).max(1) * block;
    for start in (0..right.depth).step_by(depth) {
        let write = if start == 0 { to.write } else { Write::Add };
        let (left, right) = (left.stretch(start, depth), right.stretch(start, depth));
        // SAFETY: as the caller promises; the sums that are added to have been written.
        unsafe { shallow_product(&left, &right, Destination { write, ..to }, how, None) };
    }
}

/// Number of values of the right operand that [`product_with_unpacked`] packs at a time for few
/// rows: 256 KiB of f32, which fit in the second-level cache.
const PACKED_AT_A_TIME: usize = 1 << 16;

/// Computes a product with a right operand that is packed only for this product, to the same bits
/// as [`product_with_packed`]. For few rows, some panels at a time are packed and multiplied while
/// they are in the cache, so that no memory is written but the result.
///
/// # Safety
/// As for [`product`].
pub(super) unsafe fn product_with_unpacked(
    left: &Operand<'_>,
    right: &Operand<'_>,
    to: Destination,
    packing: Packing,
) {
    if left.count > PANEL {
        // SAFETY: as the caller promises.
        unsafe { product_in_pieces(left, right, to, (packing, Threads::All), LARGEST_PACK) };
        return;
    }
    let count = (PACKED_AT_A_TIME / (PANEL * right.depth.max(1))).max(1);
    let groups = right.panels().div_ceil(count);
    let group = |group: usize| {
        let panels = group * count..((group + 1) * count).min(right.panels());
        let to = Destination { offset: to.offset + panels.start * PANEL, ..to };
        // SAFETY: as the caller promises; each group has its own columns.
        unsafe { shallow_product(left, &right.narrow(&panels), to, (packing, Threads::One), None) };
    };
    match worthwhile(left, right.count, Threads::All) {
        Threads::One => (0..groups).for_each(group),
        Threads::All => region(even(groups), || {
            (0..groups).into_par_iter().with_max_len(1).for_each(group);
        }),
    }
}

/// Computes a product, and packs the right operand as a whole. No sum is divided into stretches.
///
/// # Safety
/// As for [`product`].
unsafe fn shallow_product(
    left: &Operand<'_>,
    right: &Operand<'_>,
    to: Destination,
    (packing, threads): (Packing, Threads),
    finish: Option<Finish<'_, f32>>,
) -> bool {
    let threads = worthwhile(left, right.count, threads);
    with_scratch(&RIGHT, right.panels() * right.steps() * packing.step_lines(), |packed| {
        pack(right, 0..right.panels(), 0..right.steps(), packing, packed, threads);
        // SAFETY: as the caller promises.
        unsafe { multiply(left, packed, right.count, to, (packing, threads), finish) }
    })
}

/// Computes `left · right` with a packed right operand. The order of the additions in a sum depends
/// only on the depth of `left`.
///
/// # Safety
/// As for [`product`].
pub(super) unsafe fn product_with_packed(
    left: &Operand<'_>,
    right: &Packed,
    to: Destination,
    threads: Threads,
    finish: Option<Finish<'_, f32>>,
) -> bool {
    assert!(right.steps() == left.steps());
    let how = (right.packing(), worthwhile(left, right.columns(), threads));
    // SAFETY: as the caller promises.
    unsafe { multiply(left, right.all_lines(), right.columns(), to, how, finish) }
}

fn worthwhile(left: &Operand<'_>, columns: usize, threads: Threads) -> Threads {
    // In 32 bits, the number of multiply-adds can overflow.
    let count = left.count.saturating_mul(left.depth).saturating_mul(columns);
    if count < WORTH_A_THREAD { Threads::One } else { threads }
}

/// Multiplies blocks of rows by panels of columns, in parallel. Returns whether `finish` has been
/// called for every row.
///
/// # Safety
/// As for [`product`].
unsafe fn multiply(
    left: &Operand<'_>,
    right: &[Line],
    columns: usize,
    to: Destination,
    (packing, threads): (Packing, Threads),
    finish: Option<Finish<'_, f32>>,
) -> bool {
    let panels = columns.div_ceil(PANEL);
    let job = Job {
        left,
        right,
        columns,
        packing,
        write: to.write,
        offset: to.offset,
        stride: to.stride,
    };
    let shared = to.values;
    let blocks = left.panels().div_ceil(packing.block().0);
    let whole_rows = |rows: Range<usize>| {
        job.run(rows.clone(), 0..panels, &shared);
        let Some(finish) = finish else { return };
        let (first, end) = (rows.start * PANEL, (rows.end * PANEL).min(left.count));
        let count = (FINISHED / columns.max(1)).max(1);
        for row in (first..end).step_by(count) {
            let range = to.offset + row * to.stride..to.offset + end.min(row + count) * to.stride;
            // SAFETY: these rows have just been written, and only this piece uses them.
            finish(row, unsafe { shared.range(range) });
        }
    };
    if threads == Threads::One {
        (0..blocks).for_each(|block| whole_rows(share(left.panels(), block, blocks)));
        return true;
    }
    let divided = |threads| Pieces::new((left.panels(), panels), blocks, threads);
    let longest = |threads| even(divided(threads).count())(threads);
    let pieces @ Pieces { blocks, groups } = divided(rayon::current_num_threads());
    if groups == 1 {
        region(longest, || {
            (0..blocks)
                .into_par_iter()
                .with_max_len(1)
                .for_each(|block| whole_rows(share(left.panels(), block, blocks)));
        });
        return true;
    }
    region(longest, || {
        (0..pieces.count()).into_par_iter().with_max_len(1).for_each(|piece| {
            let (block, group) = (piece / groups, piece % groups);
            job.run(share(left.panels(), block, blocks), share(panels, group, groups), &shared);
        });
    });
    false
}

/// How a product is divided into pieces for threads. The panels of rows are divided into `blocks`.
/// For each block, the panels of columns are divided into `groups`.
#[derive(Clone, Copy)]
struct Pieces {
    blocks: usize,
    groups: usize,
}

impl Pieces {
    /// Divides a product of `rows` by `columns` panels so that all threads end at about the same
    /// time. `least`: smallest number of blocks that makes each block fit in the cache. A wide
    /// result is divided by columns, so that each panel of columns is read once for all rows of a
    /// block. Other results are divided by rows. If there are few rows, they are also divided by
    /// columns, although each group then packs the rows again.
    fn new((rows, columns): (usize, usize), least: usize, threads: usize) -> Self {
        let is_wide = columns >= WIDE * rows;
        if is_wide {
            return Self { blocks: least, groups: (4 * threads).div_ceil(least).min(columns) };
        }
        let blocks = least.next_multiple_of(threads).max(4 * threads).min(rows);
        let groups =
            if blocks >= threads { 1 } else { (2 * threads).div_ceil(blocks).min(columns) };
        Self { blocks, groups }
    }

    const fn count(self) -> usize {
        self.blocks * self.groups
    }
}

/// Computes a product with few results and a long summed dimension, such as the gradient with
/// respect to a weight. Each task takes a stretch of the summed dimension, so that no two tasks
/// pack the same data. The stretches depend only on the shape, and their sums are added in order.
/// If there are more threads than stretches, the columns are divided, too. Then each task of a
/// stretch packs the same rows again.
///
/// # Safety
/// As for [`product`].
unsafe fn deep_product(left: &Operand<'_>, right: &Operand<'_>, to: Destination, packing: Packing) {
    let (rows, columns) = (left.count, right.count);
    let stretch = left.depth.div_ceil(STRETCHES).next_multiple_of(DEPTH);
    let count = left.depth.div_ceil(stretch);
    let mut sums = Vec::with_capacity(count * rows * columns);
    let parts = Shared::spare(&mut sums, count * rows * columns);
    let groups = |threads: usize| match threads {
        0..=STRETCHES => 1,
        _ => (2 * threads).div_ceil(count).min(right.panels()),
    };
    let longest = |threads| even(count * groups(threads))(threads);
    let groups = groups(rayon::current_num_threads());
    let one_piece = |piece: usize| {
        let (index, group) = (piece / groups, piece % groups);
        let (start, panels) = (index * stretch, share(right.panels(), group, groups));
        let to = Destination {
            values: parts,
            offset: index * rows * columns + panels.start * PANEL,
            stride: columns,
            write: Write::Replace,
        };
        // SAFETY: each task has its own columns of its own part of the scratch memory.
        unsafe {
            product(
                &left.stretch(start, stretch),
                &right.stretch(start, stretch).narrow(&panels),
                to,
                (packing, Threads::One),
                None,
            )
        };
    };
    region(longest, || {
        (0..count * groups).into_par_iter().with_max_len(1).for_each(one_piece);
    });
    // SAFETY: the tasks have written all elements.
    unsafe { sums.set_len(count * rows * columns) };
    let one_row = |row: usize| {
        let start = to.offset + row * to.stride;
        let part = |index: usize| &sums[(index * rows + row) * columns..][..columns];
        let skipped = usize::from(to.write == Write::Replace);
        if to.write == Write::Replace {
            // SAFETY: rows are disjoint, and within the destination, as the caller promises.
            unsafe { to.values.write(start, part(0)) };
        }
        // SAFETY: as above; if values are added, those in the destination are initialised, and
        // otherwise the row has just been written.
        let out = unsafe { to.values.range(start..start + columns) };
        (skipped..count).for_each(|index| crate::parallel::add(out, part(index)));
    };
    let some = (1 << 14) / columns.max(1) + 1;
    region(even(rows.div_ceil(some)), || {
        (0..rows).into_par_iter().with_min_len(some).for_each(one_row);
    });
}

/// Divides `count` panels into `shares` nearly equal ranges, and returns the range with the index
/// `number`.
fn share(count: usize, number: usize, shares: usize) -> Range<usize> {
    number * count / shares..(number + 1) * count / shares
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::products::{Kernel, Matrix, Products};
    use crate::rng::Counter;

    /// Packs the right operand as a whole and in pieces (columns or stretches of the depth). Checks
    /// that the products have the same bits.
    #[test]
    fn pieces_of_the_right_operand_change_no_bit() {
        let random = |count: usize, key| -> Vec<f32> {
            let counter = Counter::new(key);
            (0..count as u64).map(|i| counter.normal_at(i) as f32).collect()
        };
        let kernels = Kernel::ALL.into_iter().filter(|kernel| kernel.is_here());
        let packings = kernels.flat_map(|kernel| {
            [Products::F32, Products::Bf16].map(|products| Packing::for_kernel(kernel, products))
        });
        for packing in packings.flatten() {
            for (rows, depth, columns) in [(40, 70, 900), (33, 1500, 50), (1, 64, 2000)] {
                let (a, b) = (random(rows * depth, 1), random(depth * columns, 2));
                let left = Operand::left(&a, Matrix::rows(depth), rows, depth);
                let right = Operand::right(&b, Matrix::rows(columns), columns, depth);
                let run = |is_whole: bool| {
                    let mut out = random(rows * columns, 3);
                    for write in [Write::Replace, Write::Add] {
                        let values = Shared::new(&mut out);
                        let to = Destination { values, offset: 0, stride: columns, write };
                        let how = (packing, Threads::All);
                        // SAFETY: `out` is borrowed mutably, and has every row and column.
                        unsafe {
                            if is_whole {
                                shallow_product(&left, &right, to, how, None);
                            } else {
                                product_in_pieces(&left, &right, to, how, 5000);
                            }
                        }
                    }
                    out.into_iter().map(f32::to_bits).collect::<Vec<_>>()
                };
                assert_eq!(run(true), run(false), "{packing:?} {rows} x {depth} x {columns}");
            }
        }
    }
}
