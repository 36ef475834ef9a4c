//! Control of a search between its steps.

use std::fmt;

/// Shares time with a search, and ends it for sentences that are no longer wanted.
///
/// A search calls it between two steps, when no computation is running and everything is in the
/// search's own state. A call may take any time, and may run another search meanwhile. If a search
/// has several threads, all of them call it. `()` lets every search run to its end.
pub trait Control: Sync + fmt::Debug {
    /// Does other work. Called before each step.
    fn between_steps(&self) {}

    /// Whether the outputs of a sentence, given by its index, are no longer wanted. Its rows then
    /// leave the batch before the next step, and only its finished outputs are returned; the
    /// results of the other sentences do not change. Once the answer is `true`, it stays `true`.
    fn is_cancelled(&self, _sentence: usize) -> bool {
        false
    }
}

impl Control for () {}

/// Control that numbers sentences differently than a search: sentence `i` of the search is the
/// control's sentence `numbers[i]`.
#[derive(Debug, Clone, Copy)]
pub struct Renumbered<'c> {
    control: &'c dyn Control,
    numbers: &'c [usize],
}

impl<'c> Renumbered<'c> {
    /// Wraps `control`, which knows sentences by `numbers`.
    pub fn new(control: &'c dyn Control, numbers: &'c [usize]) -> Self {
        Self { control, numbers }
    }
}

impl Control for Renumbered<'_> {
    fn between_steps(&self) {
        self.control.between_steps();
    }

    fn is_cancelled(&self, sentence: usize) -> bool {
        self.numbers.get(sentence).is_some_and(|&number| self.control.is_cancelled(number))
    }
}
