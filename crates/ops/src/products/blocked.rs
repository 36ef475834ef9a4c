//! The blocking around the bf16 kernels: what is packed when, and what stays in which cache.
//!
//! The right operand is packed whole, in panels of 32 columns. The left one is packed in blocks of
//! rows that fit the second-level cache. A panel of the right operand, a few hundred values deep,
//! stays in the first-level cache while the rows of a block pass by.

use super::tile::{DEPTH, Line, Operand, PANEL, Results, STEP_LINES, pack_panel};
use super::{Finish, Kernel, Products, Threads};
use crate::shared::{Shared, Write};
use rayon::prelude::*;
use std::cell::Cell;
use std::ops::Range;

/// Depth steps of a block: 512 values, 32 KiB of a panel in one part.
const BLOCK_STEPS: usize = 512 / DEPTH;
/// Panels of rows in a block: 256 rows, 256 KiB of the left operand in one part.
const BLOCK_PANELS: usize = 256 / PANEL;
/// Multiply-adds below which a second thread costs more than it brings.
const WORTH_A_THREAD: usize = 1 << 20;

/// How many times as many panels of columns as of rows make a result wide.
const WIDE: usize = 4;

/// Where the result goes: row-major with a stride. It need not be initialised where it is replaced.
#[derive(Clone, Copy)]
pub(super) struct Destination {
    pub(super) values: Shared<f32>,
    pub(super) offset: usize,
    pub(super) stride: usize,
    pub(super) write: Write,
}

thread_local! {
    /// Scratch for packed operands, kept between products.
    static LEFT: Cell<Vec<Line>> = const { Cell::new(Vec::new()) };
    static RIGHT: Cell<Vec<Line>> = const { Cell::new(Vec::new()) };
}

/// Lends a scratch vector of at least `lines`. Taken out of its cell, so that a task that runs
/// while another waits gets its own.
fn with_scratch<R>(
    cell: &'static std::thread::LocalKey<Cell<Vec<Line>>>,
    lines: usize,
    work: impl FnOnce(&mut [Line]) -> R,
) -> R {
    let mut scratch = cell.take();
    if scratch.len() < lines {
        scratch.resize(lines, Line::ZERO);
    }
    let result = work(&mut scratch[..lines]);
    cell.set(scratch);
    result
}

/// Stretches of the summed dimension into which a deep product is cut: a number that two, four or
/// eight threads share evenly.
const STRETCHES: usize = 8;
/// Values of that dimension from which a product is deep.
const DEEP: usize = 1024;
/// Results of a deep product at most: its tasks have as many partial sums each.
const DEEP_RESULTS: usize = 512 * 1024;

/// Results of whole rows that are finished at a time: what the first-level cache holds beside what
/// goes into them.
const FINISHED: usize = 4 * 1024;

/// Returns whether `finish` has been called for every row, while its results are in cache;
/// otherwise it has been for none.
///
/// # Safety
/// The destination has room for every row and column, and nobody else reads or writes it meanwhile;
/// with `finish` it has no gaps.
pub(super) unsafe fn product(
    left: &Operand<'_>,
    right: &Operand<'_>,
    to: Destination,
    (kernel, products, threads): (Kernel, Products, Threads),
    finish: Option<Finish<'_, f32>>,
) -> bool {
    if threads == Threads::All && left.depth >= DEEP && left.count * right.count <= DEEP_RESULTS {
        // SAFETY: the caller's promise.
        unsafe { deep_product(left, right, to, kernel, products) };
        return false;
    }
    let parts = parts(products);
    let threads = worthwhile(left, right.count, threads);
    with_scratch(&RIGHT, right.panels() * right.steps() * parts * STEP_LINES, |packed| {
        pack(right, 0..right.panels(), 0..right.steps(), parts, packed, threads);
        // SAFETY: the caller's promise.
        unsafe { multiply(left, packed, right.count, to, (kernel, parts, threads), finish) }
    })
}

/// `left · right`, where the right operand was packed before; the order of every sum depends on
/// `left`'s depth alone.
///
/// # Safety
/// As [`product`].
pub(super) unsafe fn product_with_packed(
    left: &Operand<'_>,
    right: &Packed,
    to: Destination,
    (kernel, threads): (Kernel, Threads),
    finish: Option<Finish<'_, f32>>,
) -> bool {
    assert!(right.steps == left.steps());
    let how = (kernel, right.parts, worthwhile(left, right.count, threads));
    // SAFETY: the caller's promise.
    unsafe { multiply(left, &right.lines, right.count, to, how, finish) }
}

fn worthwhile(left: &Operand<'_>, columns: usize, threads: Threads) -> Threads {
    if left.count * left.depth * columns < WORTH_A_THREAD { Threads::One } else { threads }
}

/// Blocks of rows times panels of columns, side by side; returns whether `finish` was called.
///
/// # Safety
/// As [`product`].
unsafe fn multiply(
    left: &Operand<'_>,
    right: &[Line],
    columns: usize,
    to: Destination,
    (kernel, parts, threads): (Kernel, usize, Threads),
    finish: Option<Finish<'_, f32>>,
) -> bool {
    let panels = columns.div_ceil(PANEL);
    let panel_lines = left.steps() * parts * STEP_LINES;
    let job = Job {
        left,
        right,
        columns,
        panel_lines,
        parts,
        kernel,
        write: to.write,
        offset: to.offset,
        stride: to.stride,
    };
    let shared = to.values;
    let blocks = left.panels().div_ceil(BLOCK_PANELS);
    let whole_rows = |rows: Range<usize>| {
        job.run(rows.clone(), 0..panels, &shared);
        let Some(finish) = finish else { return };
        let (first, end) = (rows.start * PANEL, (rows.end * PANEL).min(left.count));
        let count = (FINISHED / columns.max(1)).max(1);
        for row in (first..end).step_by(count) {
            let range = to.offset + row * to.stride..to.offset + end.min(row + count) * to.stride;
            // SAFETY: these rows have just been written, and are this piece's alone.
            finish(row, unsafe { shared.range(range) });
        }
    };
    if threads == Threads::One {
        (0..blocks).for_each(|block| whole_rows(share(left.panels(), block, blocks)));
        return true;
    }
    // Enough pieces for every thread to end at about the same time. A wide result is shared by
    // columns, so that each panel of them is read once for all rows; another by rows, or where
    // there are hardly any, by columns too, at the price of packing the rows again.
    let threads = rayon::current_num_threads();
    let is_wide = panels >= WIDE * left.panels();
    let blocks = if is_wide {
        blocks
    } else {
        blocks.next_multiple_of(threads).max(4 * threads).min(left.panels())
    };
    if blocks >= threads && !is_wide {
        (0..blocks)
            .into_par_iter()
            .with_max_len(1)
            .for_each(|block| whole_rows(share(left.panels(), block, blocks)));
        return true;
    }
    let groups = (if is_wide { 4 * threads } else { 2 * threads }).div_ceil(blocks).min(panels);
    (0..blocks * groups).into_par_iter().with_max_len(1).for_each(|piece| {
        let (block, group) = (piece / groups, piece % groups);
        job.run(share(left.panels(), block, blocks), share(panels, group, groups), &shared);
    });
    false
}

/// A product with few results and a long summed dimension, as gradients of weights are: tasks take
/// a stretch of that dimension each, so that none packs what another reads. The stretches depend on
/// the shape alone, and their sums are added in order.
///
/// # Safety
/// As [`product`].
unsafe fn deep_product(
    left: &Operand<'_>,
    right: &Operand<'_>,
    to: Destination,
    kernel: Kernel,
    products: Products,
) {
    let (rows, columns) = (left.count, right.count);
    let stretch = left.depth.div_ceil(STRETCHES).next_multiple_of(DEPTH);
    let count = left.depth.div_ceil(stretch);
    let mut sums = Vec::with_capacity(count * rows * columns);
    let parts = Shared::spare(&mut sums, count * rows * columns);
    (0..count).into_par_iter().with_max_len(1).for_each(|index| {
        let start = index * stretch;
        let to = Destination {
            values: parts,
            offset: index * rows * columns,
            stride: columns,
            write: Write::Replace,
        };
        // SAFETY: each task has its own part of the room.
        unsafe {
            product(
                &left.stretch(start, stretch),
                &right.stretch(start, stretch),
                to,
                (kernel, products, Threads::One),
                None,
            )
        };
    });
    // SAFETY: the tasks have written all of them.
    unsafe { sums.set_len(count * rows * columns) };
    (0..rows).into_par_iter().with_min_len((1 << 14) / columns.max(1) + 1).for_each(|row| {
        let start = to.offset + row * to.stride;
        let part = |index: usize| &sums[(index * rows + row) * columns..][..columns];
        let skipped = usize::from(to.write == Write::Replace);
        if to.write == Write::Replace {
            // SAFETY: rows are disjoint, and within the destination by the caller's promise.
            unsafe { to.values.write(start, part(0)) };
        }
        // SAFETY: as above; what is not replaced is initialised, and the rest is now.
        let out = unsafe { to.values.range(start..start + columns) };
        (skipped..count).for_each(|index| crate::parallel::add(out, part(index)));
    });
}

/// Packs depth steps of some panels, one panel after the other, walking through memory in the order
/// in which the operand lies there.
fn pack(
    operand: &Operand<'_>,
    panels: Range<usize>,
    steps: Range<usize>,
    parts: usize,
    lines: &mut [Line],
    threads: Threads,
) {
    let step_lines = parts * STEP_LINES;
    let panel_lines = steps.len() * step_lines;
    let shared = Shared::new(lines);
    // Rows of the summed dimension are walked across all panels; rows along it, one panel after the
    // other.
    let along = operand.inner == 1;
    let (outer, inner) =
        if along { (panels.clone(), steps.clone()) } else { (steps.clone(), panels.clone()) };
    let pack_outer = |index: usize| {
        for other in inner.clone() {
            let (panel, step) = if along { (index, other) } else { (other, index) };
            let start = (panel - panels.start) * panel_lines + (step - steps.start) * step_lines;
            // SAFETY: each pair of a panel and a step has its own lines, and `lines` outlives the
            // loops.
            let lines = unsafe { shared.range(start..start + step_lines) };
            pack_panel(operand, panel, step..step + 1, parts, lines);
        }
    };
    match threads {
        Threads::One => outer.for_each(pack_outer),
        Threads::All => outer.into_par_iter().with_min_len(2).with_max_len(4).for_each(pack_outer),
    }
}

/// One of `shares` nearly equal parts of `count` panels.
fn share(count: usize, number: usize, shares: usize) -> Range<usize> {
    number * count / shares..(number + 1) * count / shares
}

struct Job<'a> {
    left: &'a Operand<'a>,
    right: &'a [Line],
    columns: usize,
    panel_lines: usize,
    parts: usize,
    kernel: Kernel,
    write: Write,
    offset: usize,
    stride: usize,
}

impl Job<'_> {
    /// The rows of some panels of the left operand times the columns of some of the right.
    fn run(&self, rows: Range<usize>, columns: Range<usize>, out: &Shared<f32>) {
        let (steps, step_lines) = (self.left.steps(), self.parts * STEP_LINES);
        let multiply = Multiply::new(self.kernel);
        with_scratch(&LEFT, rows.len() * BLOCK_STEPS.min(steps) * step_lines, |packed| {
            // A product over nothing still has to write its zeros.
            for start in (0..steps.max(1)).step_by(BLOCK_STEPS) {
                let depth = start..(start + BLOCK_STEPS).min(steps);
                let lines = depth.len() * step_lines;
                pack(self.left, rows.clone(), depth.clone(), self.parts, packed, Threads::One);
                let add = self.write == Write::Add || start > 0;
                for column in columns.clone() {
                    let right =
                        &self.right[column * self.panel_lines + start * step_lines..][..lines];
                    for (i, row) in rows.clone().enumerate() {
                        self.block(
                            &multiply,
                            &packed[i * lines..][..lines],
                            right,
                            depth.len(),
                            (row, column),
                            add,
                            out,
                        );
                    }
                }
            }
        });
    }

    /// One block of 32 × 32 results, or what of it lies within the destination.
    #[allow(
        clippy::too_many_arguments,
        reason = "two operands and where their block begins and goes; a struct would be made per block"
    )]
    fn block(
        &self,
        multiply: &Multiply,
        left: &[Line],
        right: &[Line],
        steps: usize,
        (row, column): (usize, usize),
        add: bool,
        out: &Shared<f32>,
    ) {
        assert!(
            left.len() >= steps * self.parts * STEP_LINES
                && right.len() >= steps * self.parts * STEP_LINES
        );
        let (rows, columns) = (
            (self.left.count - row * PANEL).min(PANEL),
            (self.columns - column * PANEL).min(PANEL),
        );
        let start = self.offset + row * PANEL * self.stride + column * PANEL;
        if rows == PANEL && columns == PANEL {
            // SAFETY: within the destination, as `product` asserted, and no other piece writes
            // these rows and columns.
            let first = unsafe { out.pointer(start..start + (PANEL - 1) * self.stride + PANEL) };
            // SAFETY: 32 rows of 32 values from there, and the operands' lines are there by the
            // assertion above.
            unsafe {
                multiply.run(
                    left,
                    right,
                    steps,
                    self.parts,
                    Results { first, stride: self.stride, add },
                )
            };
            return;
        }
        // The sums go on from what is there, as they do in the middle: what a row gets does not
        // depend on where it lies.
        let mut edge = Edge([0.0; PANEL * PANEL]);
        if add {
            for (i, edge) in edge.0.chunks_exact_mut(PANEL).take(rows).enumerate() {
                let start = start + i * self.stride;
                // SAFETY: within the destination, no other piece writes these columns of the row,
                // and what is added to is initialised.
                edge[..columns].copy_from_slice(unsafe { out.range(start..start + columns) });
            }
        }
        // SAFETY: `edge` has 32 rows of 32 values.
        unsafe {
            multiply.run(
                left,
                right,
                steps,
                self.parts,
                Results { first: edge.0.as_mut_ptr(), stride: PANEL, add },
            )
        };
        for (i, edge) in edge.0.chunks_exact(PANEL).take(rows).enumerate() {
            // SAFETY: as above.
            unsafe { out.write(start + i * self.stride, &edge[..columns]) };
        }
    }
}

/// A block at the edge of the destination, computed whole.
#[repr(align(64))]
struct Edge([f32; PANEL * PANEL]);

/// A kernel made ready on this thread.
enum Multiply {
    #[cfg(target_arch = "x86_64")]
    Tiles(super::amx::Tiles),
    #[cfg(target_arch = "x86_64")]
    Dots,
}

impl Multiply {
    fn new(kernel: Kernel) -> Self {
        match kernel {
            #[cfg(target_arch = "x86_64")]
            Kernel::Tiles => Self::Tiles(super::amx::Tiles::configure()),
            #[cfg(target_arch = "x86_64")]
            Kernel::Dots if super::has_avx512_bf16() => Self::Dots,
            other => unreachable!("{other:?} does not work on packed operands"),
        }
    }

    /// # Safety
    /// As the kernels': enough lines, and a destination of 32 rows of 32 values.
    #[allow(unused_variables, reason = "other processors have no such kernel")]
    unsafe fn run(
        &self,
        left: &[Line],
        right: &[Line],
        steps: usize,
        parts: usize,
        results: Results,
    ) {
        match self {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the caller's promise.
            Self::Tiles(tiles) => unsafe {
                tiles.multiply(left.as_ptr(), right.as_ptr(), steps, parts, results)
            },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the caller's promise; `new` found the features.
            Self::Dots => unsafe {
                super::dot::multiply(left.as_ptr(), right.as_ptr(), steps, results)
            },
            #[cfg(not(target_arch = "x86_64"))]
            _ => {}
        }
    }
}

/// An operand packed once, for many products with parts of it.
#[derive(Debug)]
pub(crate) struct Packed {
    lines: Vec<Line>,
    /// Rows or columns.
    count: usize,
    panels: usize,
    steps: usize,
    parts: usize,
}

impl Packed {
    pub(super) fn new(operand: &Operand<'_>, products: Products) -> Self {
        let parts = parts(products);
        let (panels, steps) = (operand.panels(), operand.steps());
        let panel_lines = steps * parts * STEP_LINES;
        let mut lines = vec![Line::ZERO; panels * panel_lines];
        pack(operand, 0..panels, 0..steps, parts, &mut lines, Threads::All);
        Self { lines, count: operand.count, panels, steps, parts }
    }

    /// Columns, of a right operand.
    pub(super) fn columns(&self) -> usize {
        self.count
    }

    /// Panels of [`PANEL`] rows or columns.
    pub(crate) fn panels(&self) -> usize {
        self.panels
    }

    /// Some steps of one panel.
    fn lines(&self, panel: usize, steps: &Range<usize>) -> &[Line] {
        let step_lines = self.parts * STEP_LINES;
        let start = (panel * self.steps + steps.start) * step_lines;
        &self.lines[start..start + steps.len() * step_lines]
    }
}

fn parts(products: Products) -> usize {
    if products == Products::Bf16 { 1 } else { 3 }
}

/// Products of packed operands on the calling thread.
pub(crate) struct PackedProducts {
    multiply: Multiply,
    parts: usize,
    scratch: Vec<Line>,
}

impl PackedProducts {
    /// For a kernel that works on packed operands.
    pub(crate) fn new(kernel: Kernel, products: Products) -> Self {
        Self { multiply: Multiply::new(kernel), parts: parts(products), scratch: Vec::new() }
    }

    /// `out ← [out +]` some panels of `left` times some of `right`, summed over all steps. `out` is
    /// row-major with `stride`, and has room for whole panels: what lies outside the operands
    /// is zero.
    pub(crate) fn of_panels(
        &self,
        left: (&Packed, Range<usize>),
        right: (&Packed, Range<usize>),
        out: &mut [f32],
        stride: usize,
    ) {
        assert!(left.0.steps == right.0.steps);
        let steps = 0..left.0.steps;
        self.blocks(
            left.1.len(),
            |row| left.0.lines(left.1.start + row, &steps),
            right,
            &steps,
            (out, stride),
            Write::Replace,
        );
    }

    /// `out ← [out +] left · right[from..]`: a left operand that is packed for this product alone,
    /// times as many steps of all panels of `right` as it is deep. `out` as above.
    pub(super) fn of_operand(
        &mut self,
        left: &Operand<'_>,
        right: &Packed,
        from: usize,
        (out, stride): (&mut [f32], usize),
        write: Write,
    ) {
        let steps = from..from + left.steps();
        let lines = left.steps() * self.parts * STEP_LINES;
        let mut packed = std::mem::take(&mut self.scratch);
        packed.resize(packed.len().max(left.panels() * lines), Line::ZERO);
        pack(left, 0..left.panels(), 0..left.steps(), self.parts, &mut packed, Threads::One);
        self.blocks(
            left.panels(),
            |row| &packed[row * lines..(row + 1) * lines],
            (right, 0..right.panels),
            &steps,
            (out, stride),
            write,
        );
        self.scratch = packed;
    }

    fn blocks<'a>(
        &self,
        rows: usize,
        left: impl Fn(usize) -> &'a [Line],
        (right, columns): (&Packed, Range<usize>),
        steps: &Range<usize>,
        (out, stride): (&mut [f32], usize),
        write: Write,
    ) {
        assert!(
            right.parts == self.parts
                && columns.len() * PANEL <= stride
                && rows * PANEL * stride <= out.len()
        );
        for (j, column) in columns.enumerate() {
            let right = right.lines(column, steps);
            for i in 0..rows {
                let left = left(i);
                assert!(left.len() >= right.len());
                // SAFETY: both operands have the lines of all steps, and `out` has 32 rows of 32
                // values from there, by the assertions.
                unsafe {
                    let first = out.as_mut_ptr().add(i * PANEL * stride + j * PANEL);
                    self.multiply.run(
                        left,
                        right,
                        steps.len(),
                        self.parts,
                        Results { first, stride, add: write == Write::Add },
                    );
                }
            }
        }
    }
}
