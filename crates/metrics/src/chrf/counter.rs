//! Counts for chrF, segment by segment.

use crate::chrf::{COUNTS_PER_ORDER, Chrf};
use crate::metric::{Segment, SegmentCounter};
use crate::text;
use crate::text::ngrams::{NgramMatcher, Vocabulary, ngram_total};

/// A line as ids: its characters, and its words if they are counted.
#[derive(Debug, Default)]
pub(super) struct Symbols {
    pub(super) characters: Vec<u32>,
    pub(super) words: Vec<u32>,
}

/// Counter of n-grams of characters and words.
pub(crate) struct ChrfCounter<'a> {
    options: &'a Chrf,
    vocabulary: Vocabulary,
    characters: NgramMatcher,
    words: NgramMatcher,
    hypothesis: Symbols,
    reference: Symbols,
    /// Matches by order, first for characters, then for words.
    matches: Vec<f64>,
    /// Counts for the reference that was read last.
    row: Vec<f64>,
}

impl<'a> ChrfCounter<'a> {
    /// Makes the working space for these options.
    pub(crate) fn new(options: &'a Chrf) -> Self {
        let orders = options.char_order + options.word_order;
        Self {
            options,
            vocabulary: Vocabulary::default(),
            characters: NgramMatcher::default(),
            words: NgramMatcher::default(),
            hypothesis: Symbols::default(),
            reference: Symbols::default(),
            matches: vec![0.0; orders],
            row: vec![0.0; COUNTS_PER_ORDER * orders],
        }
    }

    /// Compares the hypothesis with the reference that was read last.
    fn compare(&mut self) {
        let (char_order, word_order) = (self.options.char_order, self.options.word_order);
        self.matches.fill(0.0);
        let (character_matches, word_matches) = self.matches.split_at_mut(char_order);
        self.characters.count_reference(&self.reference.characters, char_order);
        self.characters.add_matches(character_matches);
        self.words.count_reference(&self.reference.words, word_order);
        self.words.add_matches(word_matches);
        let (hypothesis, reference) = (&self.hypothesis, &self.reference);
        let characters = (1..=char_order)
            .map(|order| (order, hypothesis.characters.len(), reference.characters.len()));
        let words =
            (1..=word_order).map(|order| (order, hypothesis.words.len(), reference.words.len()));
        let counts = self.row.chunks_exact_mut(COUNTS_PER_ORDER).zip(&self.matches);
        for ((order, hypothesis, reference), (counts, &matches)) in
            characters.chain(words).zip(counts)
        {
            counts[1] = ngram_total(reference, order);
            counts[0] = if counts[1] > 0.0 { ngram_total(hypothesis, order) } else { 0.0 };
            counts[2] = matches;
        }
    }
}

impl SegmentCounter for ChrfCounter<'_> {
    /// Counts a segment. If it has several references, only the reference with the best score is
    /// used.
    fn count(&mut self, segment: &Segment<'_>, row: &mut [f64]) {
        read_symbols(segment.hypothesis, self.options, &mut self.vocabulary, &mut self.hypothesis);
        self.characters.start(&self.hypothesis.characters, self.options.char_order);
        self.words.start(&self.hypothesis.words, self.options.word_order);
        let mut best: Option<f64> = None;
        for reference in &segment.references {
            read_symbols(reference, self.options, &mut self.vocabulary, &mut self.reference);
            self.compare();
            let score = self.options.f_score(&self.row);
            if best.is_none_or(|highest| score > highest) {
                best = Some(score);
                row.copy_from_slice(&self.row);
            }
        }
    }
}

/// Replaces `symbols` with the characters of a line and, if `options` count words, the ids of its
/// words.
pub(super) fn read_symbols(
    line: &str,
    options: &Chrf,
    vocabulary: &mut Vocabulary,
    symbols: &mut Symbols,
) {
    let line = text::fold_case(line, options.lowercase);
    let kept = |character: &char| options.whitespace || !text::is_space(*character);
    symbols.characters.clear();
    symbols.characters.extend(line.chars().filter(kept).map(u32::from));
    symbols.words.clear();
    if options.word_order > 0 {
        for word in text::split(&line) {
            let (first, second) = split_punctuation(word);
            symbols.words.push(vocabulary.number(first));
            if let Some(second) = second {
                symbols.words.push(vocabulary.number(second));
            }
        }
    }
}

/// Splits one ASCII punctuation mark off a word: the last character if it is a mark, otherwise the
/// first.
fn split_punctuation(word: &str) -> (&str, Option<&str>) {
    if word.chars().nth(1).is_none() {
        return (word, None);
    }
    // ASCII marks are one byte long, so both cuts fall between characters.
    if word.ends_with(|last: char| last.is_ascii_punctuation()) {
        let (rest, mark) = word.split_at(word.len() - 1);
        (rest, Some(mark))
    } else if word.starts_with(|first: char| first.is_ascii_punctuation()) {
        let (mark, rest) = word.split_at(1);
        (mark, Some(rest))
    } else {
        (word, None)
    }
}
