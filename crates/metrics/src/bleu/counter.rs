//! Counts for BLEU, segment by segment.

use crate::bleu::Bleu;
use crate::metric::{Segment, SegmentCounter};
use crate::text;
use crate::text::ngrams::{NgramMatcher, Vocabulary, ngram_total};
use crate::text::rewriting::Buffers;

/// Counter of words and their n-grams.
pub(crate) struct BleuCounter<'a> {
    options: &'a Bleu,
    vocabulary: Vocabulary,
    matcher: NgramMatcher,
    buffers: Buffers,
    words: Vec<u32>,
}

impl<'a> BleuCounter<'a> {
    /// Makes the working space for these options.
    pub(crate) fn new(options: &'a Bleu) -> Self {
        Self {
            options,
            vocabulary: Vocabulary::default(),
            matcher: NgramMatcher::default(),
            buffers: Buffers::default(),
            words: Vec::new(),
        }
    }

    /// Replaces `words` with the ids of a line's tokens.
    fn read_words(&mut self, line: &str) {
        let line = text::fold_case(line, self.options.lowercase);
        let tokens = self.options.tokenizer.rewrite(text::trim_end(&line), &mut self.buffers);
        self.words.clear();
        self.words.extend(text::split(tokens).map(|token| self.vocabulary.number(token)));
    }
}

impl SegmentCounter for BleuCounter<'_> {
    fn count(&mut self, segment: &Segment<'_>, row: &mut [f64]) {
        let max_order = self.options.max_order;
        self.read_words(segment.hypothesis);
        let length = self.words.len();
        self.matcher.start(&self.words, max_order);
        let mut closest = usize::MAX;
        for reference in &segment.references {
            self.read_words(reference);
            self.matcher.count_reference(&self.words, max_order);
            self.matcher.keep_largest();
            let candidate = self.words.len();
            // If two references are equally close in length, the shorter one counts.
            if (candidate.abs_diff(length), candidate) < (closest.abs_diff(length), closest) {
                closest = candidate;
            }
        }
        row[0] = length as f64;
        row[1] = closest as f64;
        let (matches, totals) = row[2..].split_at_mut(max_order);
        matches.fill(0.0);
        self.matcher.add_best_matches(matches);
        for (order, total) in (1..).zip(totals) {
            *total = ngram_total(length, order);
        }
    }
}
