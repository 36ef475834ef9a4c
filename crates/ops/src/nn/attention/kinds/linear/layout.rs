//! Positions in memory of sequences and heads, and of the numbers that are kept for the backward
//! pass.

use crate::nn::attention::kinds::heads::PackedLayout;
use crate::products::PANEL;
use crate::spec::attention::kinds::{LinearAttentionShape, LinearAttentionSpec};
use std::ops::Range;

/// Number of tokens in a chunk. They are so few that their data fits in the second-level cache. The
/// number is about the width of a head. So products within a chunk take about as long as products
/// with the state (the sums over earlier tokens).
pub(super) const CHUNK: usize = 64;
/// Number of tokens in a group of chunks: a state is kept before each group. In the backward pass,
/// the features and states of a group fit into the second-level cache.
pub(super) const GROUP: usize = 8 * CHUNK;

/// Position of a sequence in the packed rows (one for each real token), and positions of the
/// numbers that are kept for it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sequence {
    number: usize,
    pub(super) first: usize,
    pub(super) length: usize,
    /// Index of the first state that is kept for the sequence.
    state: usize,
    /// Index of the first exponent c that is kept for the sequence; random features of keys are
    /// divided by `exp(c)`.
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

    /// Makes the layout for heads whose widths add up to `width`. `features`: number of random
    /// features of each head, or `None` for `elu(x) + 1`.
    pub(super) fn for_width(
        spec: &LinearAttentionSpec,
        width: usize,
        features: Option<usize>,
    ) -> Self {
        let (tokens, head) = (spec.lengths.iter().sum(), width / spec.heads);
        let shape = LinearAttentionShape { tokens, head, features: features.unwrap_or(head) };
        Self::new(spec, shape, features.is_some())
    }

    /// Returns the number of states that are kept for each head of a sequence. Under a causal mask,
    /// this is the state before each group except the first; otherwise only the state after the
    /// last token.
    fn states_of(causal: bool, length: usize) -> usize {
        if causal { length.div_ceil(GROUP).saturating_sub(1) } else { length.min(1) }
    }

    /// Returns the number of exponents that are kept for each head of a sequence: one for each
    /// chunk under a causal mask, otherwise only one.
    fn exponents_of(causal: bool, length: usize) -> usize {
        if causal { length.div_ceil(CHUNK) } else { length.min(1) }
    }

    pub(super) fn states(&self) -> usize {
        let states = |it: &Sequence| Self::states_of(self.spec.causal, it.length);
        let count = self.sequences.iter().map(states).sum::<usize>();
        count.saturating_mul(self.spec.heads).saturating_mul(self.state_size())
    }

    pub(super) fn exponents(&self) -> usize {
        let exponents = |it: &Sequence| Self::exponents_of(self.spec.causal, it.length);
        let count = self.sequences.iter().map(exponents).sum::<usize>() * self.spec.heads;
        if self.is_random { count } else { 0 }
    }

    /// Returns the number of scalars in a state.
    pub(super) fn state_size(&self) -> usize {
        self.shape.features.saturating_mul(self.shape.head.saturating_add(1))
    }

    /// Returns the index of the first scalar of a kept state. Under a causal mask, this is the
    /// state before the group `group`; otherwise it is the only state of the sequence.
    pub(super) fn state_at(&self, sequence: &Sequence, group: usize, head: usize) -> usize {
        let number = sequence.state + if self.spec.causal { group - 1 } else { 0 };
        (number * self.spec.heads + head) * self.state_size()
    }

    /// Returns the index of a kept exponent. Under a causal mask, this is the exponent of the chunk
    /// `chunk`; otherwise it is the only exponent of the sequence.
    pub(super) fn exponent_at(&self, sequence: &Sequence, chunk: usize, head: usize) -> usize {
        let number = sequence.exponent + if self.spec.causal { chunk } else { 0 };
        number * self.spec.heads + head
    }

    /// Returns the number of scalars in the last state of a sequence: the sums of all heads,
    /// followed by their exponents if features are random.
    pub(super) fn last_size(&self) -> usize {
        self.spec.heads * (self.state_size() + usize::from(self.is_random))
    }

    /// Returns the index of the first scalar of a head's last state, and the index of the head's
    /// exponent.
    pub(super) fn last_at(&self, sequence: &Sequence, head: usize) -> (usize, usize) {
        let (first, size) = (sequence.number * self.last_size(), self.state_size());
        (first + head * size, first + self.spec.heads * size + head)
    }

    /// Returns the largest number of rows in a chunk, rounded up to whole panels (the rows that a
    /// kernel processes together).
    pub(super) fn longest_chunk(&self) -> usize {
        let longest = self.sequences.iter().map(|sequence| sequence.length).max().unwrap_or(0);
        CHUNK.min(longest.next_multiple_of(PANEL))
    }
}

impl Sequence {
    /// Returns the chunks of the sequence: the index of each, and its packed rows.
    pub(super) fn chunks(&self) -> impl DoubleEndedIterator<Item = (usize, Range<usize>)> + use<> {
        let Self { first, length, .. } = *self;
        (0..length.div_ceil(CHUNK)).map(move |chunk| {
            let end = (chunk * CHUNK + CHUNK).min(length);
            (chunk, first + chunk * CHUNK..first + end)
        })
    }

    /// Returns the groups of the sequence: the index of each, and the range of its chunks' indices.
    pub(super) fn groups(&self) -> impl DoubleEndedIterator<Item = (usize, Range<usize>)> + use<> {
        let chunks = self.length.div_ceil(CHUNK);
        let of_group = GROUP / CHUNK;
        (0..chunks.div_ceil(of_group))
            .map(move |group| (group, group * of_group..chunks.min((group + 1) * of_group)))
    }

    /// Returns the packed rows of a chunk.
    pub(super) fn rows_of(&self, chunk: usize) -> Range<usize> {
        let end = (chunk * CHUNK + CHUNK).min(self.length);
        self.first + chunk * CHUNK..self.first + end
    }
}
