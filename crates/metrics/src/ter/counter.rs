//! Counts for TER: the smallest number of edits that turn a hypothesis into a reference, where
//! moving a block of words is one edit.
//!
//! Finding the smallest number is intractable, so Tercom (the original program for TER) shifts
//! greedily. It considers blocks of words that the reference has at another position. It moves the
//! block that lowers the edit distance most, until no move lowers it. The blocks that are tried,
//! their order, and the limits of the search are part of the definition.

use std::cmp::Reverse;

use crate::metric::{Segment, SegmentCounter};
use crate::ter::Ter;
use crate::ter::edit_distance::EditDistance;
use crate::text;
use crate::text::ngrams::Vocabulary;
use crate::text::rewriting::Buffers;

/// Largest number of words in a block that is shifted.
const MAX_SHIFT_SIZE: usize = 10;

/// Largest distance, in words, between the positions of a block in hypothesis and reference.
const MAX_SHIFT_DISTANCE: usize = 50;

/// Number of shifts that are tried for one pair of sentences before the search gives up.
const MAX_SHIFTS_TRIED: usize = 1000;

/// Counter of edits.
pub(crate) struct TerCounter<'a> {
    options: &'a Ter,
    vocabulary: Vocabulary,
    buffers: Buffers,
    distance: EditDistance,
    hypothesis: Vec<u32>,
    reference: Vec<u32>,
    /// The hypothesis after the shifts that were made so far. `tried` is the hypothesis after the
    /// shift that is being tried, and `best` the hypothesis after the best shift.
    shifted: Vec<u32>,
    tried: Vec<u32>,
    best: Vec<u32>,
}

/// A block of words at different positions in hypothesis and reference.
#[derive(Debug, Clone, Copy)]
struct Block {
    hypothesis_start: usize,
    reference_start: usize,
    length: usize,
}

/// Rank of a shift. The shift with the highest rank is chosen. A larger gain is better; among equal
/// gains, a longer block is better, then an earlier block, then an earlier target.
type Rank = (i64, usize, Reverse<(usize, usize)>);

impl<'a> TerCounter<'a> {
    /// Makes the working space for these options.
    pub(crate) fn new(options: &'a Ter) -> Self {
        Self {
            options,
            vocabulary: Vocabulary::default(),
            buffers: Buffers::default(),
            distance: EditDistance::default(),
            hypothesis: Vec::new(),
            reference: Vec::new(),
            shifted: Vec::new(),
            tried: Vec::new(),
            best: Vec::new(),
        }
    }

    /// Number of edits between the hypothesis and the reference that were read last.
    fn edits(&mut self) -> usize {
        if self.reference.is_empty() {
            return self.hypothesis.len();
        }
        self.shifted.clone_from(&self.hypothesis);
        self.distance.start(&self.shifted, &self.reference);
        let mut shifts = 0;
        let mut tried = 0;
        while self.distance.total() > 0 {
            let gain = self.best_shift(&mut tried);
            // If a search gives up, its last shift is not applied.
            if tried >= MAX_SHIFTS_TRIED || gain <= 0 {
                break;
            }
            shifts += 1;
            std::mem::swap(&mut self.shifted, &mut self.best);
            self.distance.start(&self.shifted, &self.reference);
        }
        shifts + self.distance.total() as usize
    }

    /// Tries all shifts of the current hypothesis. Leaves the hypothesis after the best shift in
    /// `best`, and returns the gain: how much this shift lowers the distance.
    fn best_shift(&mut self, tried: &mut usize) -> i64 {
        let before = i64::from(self.distance.total());
        self.distance.align(&self.shifted, &self.reference);
        let mut best: Option<Rank> = None;
        for hypothesis_start in 0..self.shifted.len() {
            let first = hypothesis_start.saturating_sub(MAX_SHIFT_DISTANCE);
            let last = (hypothesis_start + MAX_SHIFT_DISTANCE).min(self.reference.len() - 1);
            for reference_start in first..=last {
                let pairs =
                    self.shifted[hypothesis_start..].iter().zip(&self.reference[reference_start..]);
                let longest =
                    pairs.take(MAX_SHIFT_SIZE).take_while(|(left, right)| left == right).count();
                for length in 1..=longest {
                    let block = Block { hypothesis_start, reference_start, length };
                    if !self.is_worth_shifting(block) {
                        continue;
                    }
                    let mut previous = None;
                    for offset in 0..=length {
                        let target = self.distance.insertion_point(reference_start + offset);
                        if previous.replace(target) == Some(target) {
                            continue;
                        }
                        let first_changed = shift(&self.shifted, block, target, &mut self.tried);
                        let after = i64::from(self.distance.total_from(
                            &self.tried,
                            &self.reference,
                            first_changed,
                        ));
                        let rank = (before - after, length, Reverse((hypothesis_start, target)));
                        *tried += 1;
                        if best.is_none_or(|best| rank > best) {
                            best = Some(rank);
                            self.best.clone_from(&self.tried);
                        }
                    }
                    if *tried >= MAX_SHIFTS_TRIED {
                        return best.map_or(0, |(gain, ..)| gain);
                    }
                }
            }
        }
        best.map_or(0, |(gain, ..)| gain)
    }

    /// True if the target is not inside the block, and the alignment has errors both in the
    /// hypothesis words and in the reference words of the block.
    fn is_worth_shifting(&self, block: Block) -> bool {
        let Block { hypothesis_start, reference_start, length } = block;
        let target = self.distance.insertion_point(reference_start + 1);
        self.distance.hypothesis_errors()[hypothesis_start..hypothesis_start + length]
            .contains(&true)
            && self.distance.reference_errors()[reference_start..reference_start + length]
                .contains(&true)
            && !(hypothesis_start < target && target <= hypothesis_start + length)
    }
}

impl SegmentCounter for TerCounter<'_> {
    fn count(&mut self, segment: &Segment<'_>, row: &mut [f64]) {
        self.hypothesis.clear();
        let line = self.options.rewrite(segment.hypothesis, &mut self.buffers);
        self.hypothesis.extend(text::split(&line).map(|word| self.vocabulary.number(word)));
        let mut fewest = usize::MAX;
        let mut lengths = 0;
        for reference in &segment.references {
            self.reference.clear();
            let line = self.options.rewrite_reference(reference, &mut self.buffers);
            self.reference.extend(text::split(&line).map(|word| self.vocabulary.number(word)));
            fewest = fewest.min(self.edits());
            lengths += self.reference.len();
        }
        row[0] = fewest as f64;
        row[1] = lengths as f64 / segment.references.len() as f64;
    }
}

/// Writes `words` to `shifted`, with the block moved before the word at `target`. Returns the first
/// position that can have changed. If the target is inside the block, the block moves by as many
/// words as it has before the target.
fn shift(words: &[u32], block: Block, target: usize, shifted: &mut Vec<u32>) -> usize {
    let (start, end) = (block.hypothesis_start, block.hypothesis_start + block.length);
    // Target as a position among the words outside of the block.
    let place = if target < start {
        target
    } else if target > end {
        target - block.length
    } else {
        target.min(words.len() - block.length)
    };
    shifted.clear();
    shifted.extend_from_slice(words);
    if place < start {
        shifted[place..end].rotate_right(block.length);
    } else {
        shifted[start..place + block.length].rotate_left(block.length);
    }
    start.min(place)
}
