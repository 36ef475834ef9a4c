//! Costs of the parts of a model, added up while they are built.

use crate::cost::PartCost;

/// A stream: one of the sequences of tokens that a model reads in a pass. The cost of a part of a
/// model is counted per token of one stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    /// The stream that a model with two streams reads first: source texts or images.
    First,
    /// The second of two streams, such as target texts. In a model with only one stream, that
    /// stream.
    Last,
}

/// Cost of all parts made so far, per token of each stream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tally {
    pub(crate) first: PartCost,
    pub(crate) last: PartCost,
    /// Current stream: the one whose cost is being counted.
    pub(crate) stream: Stream,
}

impl Tally {
    /// Makes a tally in which nothing is counted yet, with `stream` as the current stream.
    pub(crate) fn new(stream: Stream) -> Self {
        Self { first: PartCost::default(), last: PartCost::default(), stream }
    }

    /// Cost per token of the current stream.
    pub(crate) fn current(&self) -> PartCost {
        match self.stream {
            Stream::First => self.first,
            Stream::Last => self.last,
        }
    }

    /// Sets the cost per token of the current stream.
    pub(crate) fn set_current(&mut self, cost: PartCost) {
        match self.stream {
            Stream::First => self.first = cost,
            Stream::Last => self.last = cost,
        }
    }

    /// Adds the costs of `other`, multiplied by `times`.
    pub(crate) fn add(&mut self, other: &Self, times: usize) {
        self.first = self.first + other.first * times;
        self.last = self.last + other.last * times;
    }
}
