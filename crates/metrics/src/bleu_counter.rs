//! The counts behind BLEU, gathered segment by segment.

use serde::{Deserialize, Serialize};

use crate::bleu::Bleu;
use crate::error::MetricError;
use crate::ngrams::{NgramMatcher, Vocabulary, ngram_total};
use crate::signature::ReferenceCount;
use crate::text;
use crate::tokenizer::Buffers;

/// Counts that determine a BLEU score; those of parts of a corpus add up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BleuStatistics {
    /// Words in the hypotheses.
    pub hypothesis_length: u64,
    /// Words in the references, the closest in length for each segment.
    pub reference_length: u64,
    /// Clipped n-gram matches, by order.
    pub matches: Vec<u64>,
    /// N-grams in the hypotheses, by order.
    pub totals: Vec<u64>,
    /// Segments counted.
    pub segments: usize,
    /// Hypotheses that end in a space and a full stop, which tokenized text does.
    pub tokenized_endings: u64,
    /// References for each segment.
    pub references: ReferenceCount,
}

impl BleuStatistics {
    /// The statistics of no segment.
    pub fn new(max_order: usize) -> Self {
        Self {
            hypothesis_length: 0,
            reference_length: 0,
            matches: vec![0; max_order],
            totals: vec![0; max_order],
            segments: 0,
            tokenized_endings: 0,
            references: ReferenceCount::Unknown,
        }
    }

    /// Adds the statistics of further segments.
    pub fn add(&mut self, other: &Self) -> Result<(), MetricError> {
        if self.matches.len() != other.matches.len() || self.totals.len() != other.totals.len() {
            return Err(MetricError::OrderMismatch { expected: self.matches.len(), found: other.matches.len() });
        }
        self.hypothesis_length += other.hypothesis_length;
        self.reference_length += other.reference_length;
        for (sum, part) in self.matches.iter_mut().zip(&other.matches) {
            *sum += part;
        }
        for (sum, part) in self.totals.iter_mut().zip(&other.totals) {
            *sum += part;
        }
        self.segments += other.segments;
        self.tokenized_endings += other.tokenized_endings;
        self.references = self.references.combine(other.references);
        Ok(())
    }
}

/// Counts segments one after another.
#[derive(Clone)]
pub struct BleuCounter {
    options: Bleu,
    statistics: BleuStatistics,
    vocabulary: Vocabulary,
    matcher: NgramMatcher,
    buffers: Buffers,
    words: Vec<u32>,
}

impl BleuCounter {
    /// Nothing counted yet; the options have been checked.
    pub(crate) fn new(options: Bleu) -> Self {
        Self {
            statistics: BleuStatistics::new(options.max_order),
            options,
            vocabulary: Vocabulary::default(),
            matcher: NgramMatcher::default(),
            buffers: Buffers::default(),
            words: Vec::new(),
        }
    }

    /// Adds a segment: one hypothesis and each of its references.
    pub fn add<R: AsRef<str>>(&mut self, hypothesis: &str, references: &[R]) -> Result<(), MetricError> {
        if references.is_empty() {
            return Err(MetricError::SegmentWithoutReference { segment: self.statistics.segments + 1 });
        }
        let max_order = self.options.max_order;
        self.read_words(hypothesis);
        let length = self.words.len();
        self.matcher.start(&self.words, max_order);
        let mut closest = usize::MAX;
        for reference in references {
            self.read_words(reference.as_ref());
            self.matcher.count_reference(&self.words, max_order);
            self.matcher.keep_largest();
            let candidate = self.words.len();
            // Of two references equally close in length, the shorter counts.
            if (candidate.abs_diff(length), candidate) < (closest.abs_diff(length), closest) {
                closest = candidate;
            }
        }
        let statistics = &mut self.statistics;
        self.matcher.add_best_matches(&mut statistics.matches);
        for (index, total) in statistics.totals.iter_mut().enumerate() {
            *total += ngram_total(length, index + 1);
        }
        statistics.hypothesis_length += length as u64;
        statistics.reference_length += closest as u64;
        statistics.segments += 1;
        statistics.tokenized_endings += u64::from(hypothesis.ends_with(" ."));
        let references = ReferenceCount::Fixed(references.len());
        statistics.references = statistics.references.combine(references);
        Ok(())
    }

    /// The sums so far.
    pub fn statistics(&self) -> &BleuStatistics {
        &self.statistics
    }

    /// Replaces `words` with the numbers of a line's tokens.
    fn read_words(&mut self, line: &str) {
        let line = text::fold_case(line, self.options.lowercase);
        let line = line.trim_end_matches(text::is_space);
        let tokens = self.options.tokenizer.rewrite(line, &mut self.buffers);
        self.words.clear();
        for token in text::split(tokens) {
            self.words.push(self.vocabulary.number(token));
        }
    }
}
