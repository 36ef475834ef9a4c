//! Where sequences and heads lie, and what is kept of them.

use super::super::layout::{Columns, head_groups};
use super::super::tiled::products::Rows;
use crate::products::PANEL;
use crate::spec::{LinearAttentionShape, LinearAttentionSpec};
use std::ops::Range;

/// Tokens of a chunk: about the width of a head, where both ways to attend take as long, and little
/// enough for the second-level cache.
pub(super) const CHUNK: usize = 64;
/// Tokens from one kept state to the next: the features and states between fit the second-level
/// cache on the way back.
pub(super) const GROUP: usize = 8 * CHUNK;

/// Where a sequence lies in the packed rows, and in what is kept.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sequence {
    number: usize,
    pub(super) first: usize,
    pub(super) length: usize,
    /// The number of its first kept state.
    state: usize,
    /// The number of the first exponent that was left out of its keys.
    exponent: usize,
}

/// Linear attention on the host.
pub(super) struct Layout {
    pub(super) spec: LinearAttentionSpec,
    pub(super) shape: LinearAttentionShape,
    pub(super) is_random: bool,
    pub(super) sequences: Vec<Sequence>,
}

impl Layout {
    pub(super) fn new(
        spec: &LinearAttentionSpec,
        shape: LinearAttentionShape,
        is_random: bool,
    ) -> Self {
        let mut next = Sequence { number: 0, first: 0, length: 0, state: 0, exponent: 0 };
        let sequence = |&length: &usize| {
            let own = Sequence { length, ..next };
            next.number += 1;
            next.first += length;
            next.state += Self::states_of(spec.causal, length);
            next.exponent += Self::exponents_of(spec.causal, length);
            own
        };
        let sequences = spec.lengths.iter().map(sequence).collect();
        Self { spec: spec.clone(), shape, is_random, sequences }
    }

    /// Of heads that are `width` wide together, with so many random features.
    pub(super) fn of(spec: &LinearAttentionSpec, width: usize, features: Option<usize>) -> Self {
        let (tokens, head) = (spec.lengths.iter().sum(), width / spec.heads);
        let shape = LinearAttentionShape { tokens, head, features: features.unwrap_or(head) };
        Self::new(spec, shape, features.is_some())
    }

    /// States that are kept of each head of a sequence: those before all groups but the first, or
    /// where all tokens are seen, the only one there is.
    fn states_of(causal: bool, length: usize) -> usize {
        if causal { length.div_ceil(GROUP).saturating_sub(1) } else { length.min(1) }
    }

    /// Exponents that are left out of the keys of a head of a sequence.
    fn exponents_of(causal: bool, length: usize) -> usize {
        if causal { length.div_ceil(CHUNK) } else { length.min(1) }
    }

    pub(super) fn states(&self) -> usize {
        let of = |it: &Sequence| Self::states_of(self.spec.causal, it.length);
        self.sequences.iter().map(of).sum::<usize>() * self.spec.heads * self.state_size()
    }

    pub(super) fn exponents(&self) -> usize {
        let of = |it: &Sequence| Self::exponents_of(self.spec.causal, it.length);
        let count = self.sequences.iter().map(of).sum::<usize>() * self.spec.heads;
        if self.is_random { count } else { 0 }
    }

    /// Numbers of a kept state.
    pub(super) fn state_size(&self) -> usize {
        self.shape.features * (self.shape.head + 1)
    }

    /// The place of a kept state: that before a group, or the only one.
    pub(super) fn state_at(&self, sequence: &Sequence, group: usize, head: usize) -> usize {
        let number = sequence.state + if self.spec.causal { group - 1 } else { 0 };
        (number * self.spec.heads + head) * self.state_size()
    }

    /// The place of the exponent of a chunk, or of the only one.
    pub(super) fn exponent_at(&self, sequence: &Sequence, chunk: usize, head: usize) -> usize {
        let number = sequence.exponent + if self.spec.causal { chunk } else { 0 };
        number * self.spec.heads + head
    }

    /// Numbers that a sequence leaves behind: the state of each head, then the exponents.
    pub(super) fn last_size(&self) -> usize {
        self.spec.heads * (self.state_size() + usize::from(self.is_random))
    }

    /// The places of the last state of a head, and of its exponent.
    pub(super) fn last_at(&self, sequence: &Sequence, head: usize) -> (usize, usize) {
        let (first, size) = (sequence.number * self.last_size(), self.state_size());
        (first + head * size, first + self.spec.heads * size + head)
    }

    /// Rows of a chunk at most, in whole panels.
    pub(super) fn longest_chunk(&self) -> usize {
        let longest = self.sequences.iter().map(|sequence| sequence.length).max().unwrap_or(0);
        CHUNK.min(longest.next_multiple_of(PANEL))
    }

    /// Elements of a row of the result.
    pub(super) fn width(&self) -> usize {
        self.spec.heads * self.shape.head
    }

    /// Where query (0), key (1) or value (2) lies.
    pub(super) fn columns(&self, part: usize) -> Columns {
        Columns { stride: 3 * self.width(), column: part * self.width() }
    }

    /// Some rows of one head of query, key or value.
    pub(super) fn rows<'a, T>(
        &self,
        qkv: &'a [T],
        part: usize,
        head: usize,
        rows: &Range<usize>,
    ) -> Rows<'a, T> {
        let width = self.shape.head;
        let at = self.columns(part).head(rows.start, head, width);
        Rows { values: qkv, at, count: rows.len(), width }
    }

    /// Sequences with heads of each, one for each task.
    pub(super) fn tasks(&self) -> Vec<(Sequence, Range<usize>)> {
        let groups = || head_groups(self.sequences.len(), self.spec.heads);
        let sequences = self.sequences.iter().filter(|sequence| sequence.length > 0);
        sequences.flat_map(|&sequence| groups().map(move |heads| (sequence, heads))).collect()
    }
}

impl Sequence {
    /// The packed rows of its chunks, each with its number.
    pub(super) fn chunks(&self) -> impl DoubleEndedIterator<Item = (usize, Range<usize>)> + use<> {
        let Self { first, length, .. } = *self;
        (0..length.div_ceil(CHUNK)).map(move |chunk| {
            let end = (chunk * CHUNK + CHUNK).min(length);
            (chunk, first + chunk * CHUNK..first + end)
        })
    }

    /// The numbers of its groups' chunks.
    pub(super) fn groups(&self) -> impl DoubleEndedIterator<Item = (usize, Range<usize>)> + use<> {
        let chunks = self.length.div_ceil(CHUNK);
        let of_group = GROUP / CHUNK;
        (0..chunks.div_ceil(of_group))
            .map(move |group| (group, group * of_group..chunks.min((group + 1) * of_group)))
    }

    /// The packed rows of a chunk.
    pub(super) fn rows_of(&self, chunk: usize) -> Range<usize> {
        let end = (chunk * CHUNK + CHUNK).min(self.length);
        self.first + chunk * CHUNK..self.first + end
    }
}
