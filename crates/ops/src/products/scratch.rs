//! Scratch memory of products; each thread keeps its own.

use super::operand::Line;
use std::cell::Cell;

thread_local! {
    /// Memory for the packed left operand, kept between products. `RIGHT` is the memory for the
    /// packed right operand.
    pub(super) static LEFT: Cell<Vec<Line>> = const { Cell::new(Vec::new()) };
    pub(super) static RIGHT: Cell<Vec<Line>> = const { Cell::new(Vec::new()) };
}

/// Calls `work` with `lines` lines of scratch memory. While `work` runs, the memory is not in its
/// cell. While `work` waits, this thread can run another task, which then gets other memory.
pub(super) fn with_scratch<R>(
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
