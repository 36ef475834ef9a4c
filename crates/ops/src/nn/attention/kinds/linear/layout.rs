//! Positions in memory of sequences and heads, and of the numbers that are kept for them.

use crate::nn::attention::kinds::heads::PackedLayout;
use crate::products::PANEL;
use crate::spec::attention::kinds::{LinearAttentionShape, LinearAttentionSpec};
use std::ops::Range;

/// Number of tokens in a chunk: small enough for the second-level cache, and about the width of a
/// head, so that products within a chunk and products with the state take about equally long.
pub(super) const CHUNK: usize = 64;
/// Number of tokens from one kept state to the next. In the backward pass, the features and states
/// of this many tokens fit into the second-level cache.
pub(super) const GROUP: usize = 8 * CHUNK;

/// Where a sequence is in the packed rows, and where its numbers are among the kept ones.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sequence {
    number: usize,
    pub(super) first: usize,
    pub(super) length: usize,
    /// Index of the sequence's first kept state.
    state: usize,
    /// Index of the sequence's first exponent; exponents are factored out of keys.
    exponent: usize,
}

/// Layout of the data of linear attention on the host.
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

    /// Makes the layout for heads whose widths sum to `width`, with `features` random features
    /// each; `None` for `elu(x) + 1`.
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
    /// kept before each group except the first; otherwise there is a single state.
    fn states_of(causal: bool, length: usize) -> usize {
        if causal { length.div_ceil(GROUP).saturating_sub(1) } else { length.min(1) }
    }

    /// Number of exponents that are kept for each head of a sequence. Under a causal mask, each
    /// chunk has one; otherwise there is a single one.
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

    /// Number of scalars in a kept state.
    pub(super) fn state_size(&self) -> usize {
        self.shape.features * (self.shape.head + 1)
    }

    /// Index of the first scalar of a kept state. Under a causal mask, this is the state before the
    /// group `group`; otherwise it is the sequence's single state.
    pub(super) fn state_at(&self, sequence: &Sequence, group: usize, head: usize) -> usize {
        let number = sequence.state + if self.spec.causal { group - 1 } else { 0 };
        (number * self.spec.heads + head) * self.state_size()
    }

    /// Index of a kept exponent. Under a causal mask, this is the exponent of the chunk `chunk`;
    /// otherwise it is the sequence's single exponent.
    pub(super) fn exponent_at(&self, sequence: &Sequence, chunk: usize, head: usize) -> usize {
        let number = sequence.exponent + if self.spec.causal { chunk } else { 0 };
        number * self.spec.heads + head
    }

    /// Number of scalars in the last state of a sequence: first the sums of each head, then the
    /// exponents.
    pub(super) fn last_size(&self) -> usize {
        self.spec.heads * (self.state_size() + usize::from(self.is_random))
    }

    /// Indices of a head's last state, and of its exponent.
    pub(super) fn last_at(&self, sequence: &Sequence, head: usize) -> (usize, usize) {
        let (first, size) = (sequence.number * self.last_size(), self.state_size());
        (first + head * size, first + self.spec.heads * size + head)
    }

    /// Largest number of rows in a chunk, rounded up to whole panels.
    pub(super) fn longest_chunk(&self) -> usize {
        let longest = self.sequences.iter().map(|sequence| sequence.length).max().unwrap_or(0);
        CHUNK.min(longest.next_multiple_of(PANEL))
    }
}

impl Sequence {
    /// Packed rows of the sequence's chunks, each with the index of the chunk.
    pub(super) fn chunks(&self) -> impl DoubleEndedIterator<Item = (usize, Range<usize>)> + use<> {
        let Self { first, length, .. } = *self;
        (0..length.div_ceil(CHUNK)).map(move |chunk| {
            let end = (chunk * CHUNK + CHUNK).min(length);
            (chunk, first + chunk * CHUNK..first + end)
        })
    }

    /// For each group of the sequence, its index, and the indices of its chunks.
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
