//! Costs of the parts of a model, added up while they are built.

use crate::cost::PartCost;

/// Stream whose tokens a part of a model is computed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    /// Stream that is read before the other: sources, or images.
    First,
    /// Stream whose tokens are predicted, or the only stream.
    Last,
}

/// Cost of all parts made so far, for a token of each stream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tally {
    pub(crate) first: PartCost,
    pub(crate) last: PartCost,
    /// Stream that is being counted.
    pub(crate) stream: Stream,
}

impl Tally {
    /// Nothing, for the stream `stream`.
    pub(crate) fn new(stream: Stream) -> Self {
        Self { first: PartCost::default(), last: PartCost::default(), stream }
    }

    /// Cost of a token of the stream that is being counted.
    pub(crate) fn current(&self) -> PartCost {
        match self.stream {
            Stream::First => self.first,
            Stream::Last => self.last,
        }
    }

    /// Sets the cost of a token of the stream that is being counted.
    pub(crate) fn set_current(&mut self, cost: PartCost) {
        match self.stream {
            Stream::First => self.first = cost,
            Stream::Last => self.last = cost,
        }
    }

    /// Adds `other`, `times` times.
    pub(crate) fn add(&mut self, other: &Self, times: usize) {
        self.first = self.first + other.first * times;
        self.last = self.last + other.last * times;
    }
}
