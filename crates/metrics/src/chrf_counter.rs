//! The counts behind chrF, gathered segment by segment.

use serde::{Deserialize, Serialize};

use crate::chrf::Chrf;
use crate::error::MetricError;
use crate::ngrams::{NgramMatcher, Vocabulary, ngram_total};
use crate::signature::ReferenceCount;
use crate::text;

/// N-gram counts of one order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct OrderCounts {
    /// N-grams in the hypothesis; 0 where the reference is too short to have any.
    pub hypothesis: u64,
    /// N-grams in the reference.
    pub reference: u64,
    /// Clipped matches.
    pub matches: u64,
}

/// Counts that determine a chrF score; those of parts of a corpus add up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChrfStatistics {
    /// Character orders, then word orders.
    pub orders: Vec<OrderCounts>,
    /// Segments counted.
    pub segments: usize,
    /// References for each segment.
    pub references: ReferenceCount,
}

impl ChrfStatistics {
    /// The statistics of no segment; `orders` is the sum of both orders.
    pub fn new(orders: usize) -> Self {
        Self { orders: vec![OrderCounts::default(); orders], segments: 0, references: ReferenceCount::Unknown }
    }

    /// Adds the statistics of further segments.
    pub fn add(&mut self, other: &Self) -> Result<(), MetricError> {
        if self.orders.len() != other.orders.len() {
            return Err(MetricError::OrderMismatch { expected: self.orders.len(), found: other.orders.len() });
        }
        self.add_counts(&other.orders);
        self.segments += other.segments;
        self.references = self.references.combine(other.references);
        Ok(())
    }

    fn add_counts(&mut self, counts: &[OrderCounts]) {
        for (sum, part) in self.orders.iter_mut().zip(counts) {
            sum.hypothesis += part.hypothesis;
            sum.reference += part.reference;
            sum.matches += part.matches;
        }
    }
}

/// A line as numbers: its characters, and its words if they are counted.
#[derive(Debug, Default, Clone)]
struct Symbols {
    characters: Vec<u32>,
    words: Vec<u32>,
}

/// Counts segments one after another.
#[derive(Clone)]
pub struct ChrfCounter {
    options: Chrf,
    statistics: ChrfStatistics,
    vocabulary: Vocabulary,
    characters: NgramMatcher,
    words: NgramMatcher,
    hypothesis: Symbols,
    reference: Symbols,
    /// Matches by order, characters then words.
    matches: Vec<u64>,
}

impl ChrfCounter {
    /// Nothing counted yet; the options have been checked.
    pub(crate) fn new(options: Chrf) -> Self {
        let orders = options.char_order + options.word_order;
        Self {
            options,
            statistics: ChrfStatistics::new(orders),
            vocabulary: Vocabulary::default(),
            characters: NgramMatcher::default(),
            words: NgramMatcher::default(),
            hypothesis: Symbols::default(),
            reference: Symbols::default(),
            matches: vec![0; orders],
        }
    }

    /// Adds a segment; of its references, the one with the best score counts.
    pub fn add<R: AsRef<str>>(&mut self, hypothesis: &str, references: &[R]) -> Result<(), MetricError> {
        if references.is_empty() {
            return Err(MetricError::SegmentWithoutReference { segment: self.statistics.segments + 1 });
        }
        let (char_order, word_order) = (self.options.char_order, self.options.word_order);
        read_symbols(hypothesis, &self.options, &mut self.vocabulary, &mut self.hypothesis);
        self.characters.start(&self.hypothesis.characters, char_order);
        self.words.start(&self.hypothesis.words, word_order);
        let mut best: Option<(f64, Vec<OrderCounts>)> = None;
        for reference in references {
            read_symbols(reference.as_ref(), &self.options, &mut self.vocabulary, &mut self.reference);
            let counts = self.count();
            let score = self.options.f_score(&counts);
            if best.as_ref().is_none_or(|(highest, _)| score > *highest) {
                best = Some((score, counts));
            }
        }
        if let Some((_, counts)) = best {
            self.statistics.add_counts(&counts);
        }
        self.statistics.segments += 1;
        let references = ReferenceCount::Fixed(references.len());
        self.statistics.references = self.statistics.references.combine(references);
        Ok(())
    }

    /// The sums so far.
    pub fn statistics(&self) -> &ChrfStatistics {
        &self.statistics
    }

    /// Compares the hypothesis with the reference just read.
    fn count(&mut self) -> Vec<OrderCounts> {
        let (char_order, word_order) = (self.options.char_order, self.options.word_order);
        self.matches.fill(0);
        let (character_matches, word_matches) = self.matches.split_at_mut(char_order);
        self.characters.count_reference(&self.reference.characters, char_order);
        self.characters.add_matches(character_matches);
        self.words.count_reference(&self.reference.words, word_order);
        self.words.add_matches(word_matches);
        let (hypothesis, reference) = (&self.hypothesis, &self.reference);
        let characters =
            (1..=char_order).map(|order| (ngram_total(hypothesis.characters.len(), order), ngram_total(reference.characters.len(), order)));
        let words = (1..=word_order).map(|order| (ngram_total(hypothesis.words.len(), order), ngram_total(reference.words.len(), order)));
        characters
            .chain(words)
            .zip(&self.matches)
            .map(|((hypothesis, reference), &matches)| OrderCounts {
                hypothesis: if reference > 0 { hypothesis } else { 0 },
                reference,
                matches,
            })
            .collect()
    }
}

/// Reads a line into numbers under these options.
fn read_symbols(line: &str, options: &Chrf, vocabulary: &mut Vocabulary, symbols: &mut Symbols) {
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

/// Splits one ASCII punctuation mark off a word: the last, or failing that the first.
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
