//! What a search asks between its steps.

use std::fmt;

/// Shares time with a search, and ends it for sentences that nobody wants any more.
///
/// A search calls it between two steps, when it computes nothing and all that it has is in its own
/// state: a call may take as long as it likes, and may search for something else meanwhile.
/// Several threads call it where a search has several. `()` lets everything go on to its end.
pub trait Control: Sync + fmt::Debug {
    /// Called before each step: a place for other work.
    fn between_steps(&self) {}

    /// Whether the outputs of a sentence, which is known by its index, are no longer wanted. Its
    /// rows then leave the batch before the next step, and only outputs that had ended are told;
    /// what is found for the others is what it would be with them. The answer stays `true` once it
    /// was.
    fn is_cancelled(&self, _sentence: usize) -> bool {
        false
    }
}

impl Control for () {}

/// A control that knows sentences by other numbers than a search: what is sentence `i` here is
/// `numbers[i]` there.
#[derive(Debug, Clone, Copy)]
pub struct Renumbered<'c> {
    control: &'c dyn Control,
    numbers: &'c [usize],
}

impl<'c> Renumbered<'c> {
    /// `control` for sentences that it knows by `numbers`.
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
