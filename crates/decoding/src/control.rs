//! Control of a search between its steps.

use std::fmt;

/// Lets a search pause for other work, and ends the search for sentences whose outputs are no
/// longer wanted.
///
/// Between two steps, when no computation is running and the search's state is complete, the search
/// calls [`between_steps`](Control::between_steps). A call can take any time, and can run another
/// search. If a search has several threads, all of them call it. The control `()` lets every search
/// run to its end.
pub trait Control: Sync + fmt::Debug {
    /// Does other work, if there is any. A search calls this before each step.
    fn between_steps(&self) {}

    /// True if the outputs of the sentence with this index are no longer wanted. If so, the rows of
    /// the sentence leave the batch before the next step, and only its finished outputs are
    /// returned, if there are any. The results of other sentences do not change. Once the answer
    /// for a sentence is `true`, it must stay `true`.
    fn is_cancelled(&self, _sentence: usize) -> bool {
        false
    }
}

impl Control for () {}

/// Wraps a control for a search that numbers the sentences differently: sentence `i` of the search
/// is sentence `numbers[i]` of the wrapped control.
#[derive(Debug, Clone, Copy)]
pub struct Renumbered<'c> {
    control: &'c dyn Control,
    numbers: &'c [usize],
}

impl<'c> Renumbered<'c> {
    /// Wraps `control`, which knows sentence `i` of the search as sentence `numbers[i]`.
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
