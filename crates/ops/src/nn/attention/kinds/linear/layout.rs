//! Positions of sequences and heads, and of the numbers kept for them.

use crate::nn::attention::kinds::heads::PackedLayout;
use crate::products::PANEL;
use crate::spec::attention::kinds::{LinearAttentionShape, LinearAttentionSpec};
use std::ops::Range;

/// Number of tokens in a chunk: small enough for the second-level cache, and about the width of a
/// head, so that the products within a chunk and the state take equally long.
pub(super) const CHUNK: usize = 64;
/// Number of tokens between two kept states: the features and states between them fit the
/// second-level cache in the backward pass.
pub(super) const GROUP: usize = 8 * CHUNK;

/// Position of a sequence in the packed rows, and of its numbers among the kept ones.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sequence {
    number: usize,
    pub(super) first: usize,
    pub(super) length: usize,
    /// Index of its first kept state.
    state: usize,
    /// Index of its first exponent, which was factored out of its keys.
    exponent: usize,
}

/// Layout of linear attention on the host.
pub(super) struct Layout {
    pub(super) spec: LinearAttentionSpec,
    pub(super) shape: LinearAttentionShape,
    pub(super) is_random: bool,
    pub(super) sequences: Vec<Sequence>,
}

impl PackedLayout for Layout {
    type Sequence = Sequence;

    fn heads(&self) -> (usize, usize) {
        (self.spec.heads, self.shape.head)
    }

    fn sequences(&self) -> &[Sequence] {
        &self.sequences
    }

    fn length(sequence: &Sequence) -> usize {
        sequence.length
    }
}

impl Layout {
    pub(super) fn new(
        spec: &LinearAttentionSpec,
        shape: LinearAttentionShape,
        is_random: bool,
    ) -> Self {
        let mut next = Sequence { number: 0, first: 0, length: 0, state: 0, exponent: 0 };
        let sequence = |&length: &usize| {
            let current = Sequence { length, ..next };
            next.number += 1;
            next.first += length;
            next.state += Self::states_of(spec.causal, length);
            next.exponent += Self::exponents_of(spec.causal, length);
            current
        };
        let sequences = spec.lengths.iter().map(sequence).collect();
        Self { spec: spec.clone(), shape, is_random, sequences }
    }

    /// Makes the layout for heads of total width `width`, with `features` random features.
    pub(super) fn for_width(
        spec: &LinearAttentionSpec,
        width: usize,
        features: Option<usize>,
    ) -> Self {
        let (tokens, head) = (spec.lengths.iter().sum(), width / spec.heads);
        let shape = LinearAttentionShape { tokens, head, features: features.unwrap_or(head) };
        Self::new(spec, shape, features.is_some())
    }

    /// Number of states that are kept for each head of a sequence. Under a causal mask, a state is
    /// kept before each group but the first; otherwise there is a single state.
    fn states_of(causal: bool, length: usize) -> usize {
        if causal { length.div_ceil(GROUP).saturating_sub(1) } else { length.min(1) }
    }

    /// Number of exponents that are factored out of the keys of a head of a sequence.
    fn exponents_of(causal: bool, length: usize) -> usize {
        if causal { length.div_ceil(CHUNK) } else { length.min(1) }
    }

    pub(super) fn states(&self) -> usize {
        let states = |it: &Sequence| Self::states_of(self.spec.causal, it.length);
        self.sequences.iter().map(states).sum::<usize>() * self.spec.heads * self.state_size()
    }

    pub(super) fn exponents(&self) -> usize {
        let exponents = |it: &Sequence| Self::exponents_of(self.spec.causal, it.length);
        let count = self.sequences.iter().map(exponents).sum::<usize>() * self.spec.heads;
        if self.is_random { count } else { 0 }
    }

    /// Number of scalars of a kept state.
    pub(super) fn state_size(&self) -> usize {
        self.shape.features * (self.shape.head + 1)
    }

    /// Place of a kept state: under a causal mask the state before a group, otherwise the single
    /// one.
    pub(super) fn state_at(&self, sequence: &Sequence, group: usize, head: usize) -> usize {
        let number = sequence.state + if self.spec.causal { group - 1 } else { 0 };
        (number * self.spec.heads + head) * self.state_size()
    }

    /// Place of the exponent: under a causal mask the exponent of a chunk, otherwise the single
    /// one.
    pub(super) fn exponent_at(&self, sequence: &Sequence, chunk: usize, head: usize) -> usize {
        let number = sequence.exponent + if self.spec.causal { chunk } else { 0 };
        number * self.spec.heads + head
    }

    /// Number of scalars of a sequence's last state: the sums of each head, then the exponents.
    pub(super) fn last_size(&self) -> usize {
        self.spec.heads * (self.state_size() + usize::from(self.is_random))
    }

    /// Places of the last state of a head, and of its exponent.
    pub(super) fn last_at(&self, sequence: &Sequence, head: usize) -> (usize, usize) {
        let (first, size) = (sequence.number * self.last_size(), self.state_size());
        (first + head * size, first + self.spec.heads * size + head)
    }

    /// Largest number of rows of a chunk, in whole panels.
    pub(super) fn longest_chunk(&self) -> usize {
        let longest = self.sequences.iter().map(|sequence| sequence.length).max().unwrap_or(0);
        CHUNK.min(longest.next_multiple_of(PANEL))
    }
}

impl Sequence {
    /// Packed rows of its chunks, each with the index of the chunk.
    pub(super) fn chunks(&self) -> impl DoubleEndedIterator<Item = (usize, Range<usize>)> + use<> {
        let Self { first, length, .. } = *self;
        (0..length.div_ceil(CHUNK)).map(move |chunk| {
            let end = (chunk * CHUNK + CHUNK).min(length);
            (chunk, first + chunk * CHUNK..first + end)
        })
    }

    /// Indices of the chunks of each of its groups.
    pub(super) fn groups(&self) -> impl DoubleEndedIterator<Item = (usize, Range<usize>)> + use<> {
        let chunks = self.length.div_ceil(CHUNK);
        let of_group = GROUP / CHUNK;
        (0..chunks.div_ceil(of_group))
            .map(move |group| (group, group * of_group..chunks.min((group + 1) * of_group)))
    }

    /// Packed rows of a chunk.
    pub(super) fn rows_of(&self, chunk: usize) -> Range<usize> {
        let end = (chunk * CHUNK + CHUNK).min(self.length);
        self.first + chunk * CHUNK..self.first + end
    }
}
