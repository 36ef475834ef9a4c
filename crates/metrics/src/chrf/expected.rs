//! Expected chrF in linear time.

use super::counter::{Symbols, read_symbols};
use super::{COUNTS_PER_ORDER, Chrf};
use crate::error::Result;
use crate::expected::{WeightedReference, check};
use crate::metric::Metric;
use crate::text::ngrams::{MeanNgrams, Vocabulary, ngram_total};

impl Chrf {
    /// Score of each hypothesis against the mean of the n-gram counts of `references`. It is close
    /// to [`expected_scores`](crate::expected_scores), but faster: each text is read only once, not
    /// once for each pair of a hypothesis and a reference (DeNero et al. 2009, "Fast Consensus
    /// Decoding over Translation Forests", section 3; Vamvas and Sennrich 2024, "Linear-time
    /// Minimum Bayes Risk Decoding with Reference Aggregation").
    ///
    /// # Errors
    /// When an option is out of range, or there is no reference.
    pub fn aggregated_expected_scores(
        &self,
        hypotheses: &[&str],
        references: &[WeightedReference<'_>],
    ) -> Result<Vec<f64>> {
        self.check()?;
        check(references)?;
        let (char_order, word_order) = (self.char_order, self.word_order);
        let (mut vocabulary, mut symbols) = (Vocabulary::default(), Symbols::default());
        let (mut characters, mut words) = (MeanNgrams::default(), MeanNgrams::default());
        let mut row = vec![0.0; self.columns()];
        let total: f64 = references.iter().map(|reference| reference.weight).sum();
        for reference in references {
            read_symbols(reference.text, self, &mut vocabulary, &mut symbols);
            let share = reference.weight / total;
            characters.add(&symbols.characters, char_order, share);
            words.add(&symbols.words, word_order, share);
            self.for_each_order(&symbols, &mut row, |counts, total| counts[1] += share * total);
        }
        let mut matches = vec![0.0; char_order + word_order];
        let mut score = |hypothesis: &&str| {
            read_symbols(hypothesis, self, &mut vocabulary, &mut symbols);
            matches.fill(0.0);
            let (of_characters, of_words) = matches.split_at_mut(char_order);
            characters.add_matches(&symbols.characters, char_order, of_characters);
            words.add_matches(&symbols.words, word_order, of_words);
            self.for_each_order(&symbols, &mut row, |counts, total| {
                counts[0] = if counts[1] > 0.0 { total } else { 0.0 };
            });
            for (counts, &matches) in row.chunks_exact_mut(COUNTS_PER_ORDER).zip(&matches) {
                counts[2] = matches;
            }
            self.value(&row)
        };
        Ok(hypotheses.iter().map(&mut score).collect())
    }

    /// For each order, calls `each` with the order's counts in `row`, and the number of n-grams of
    /// this order in a text.
    fn for_each_order(&self, symbols: &Symbols, row: &mut [f64], each: impl Fn(&mut [f64], f64)) {
        let characters = (1..=self.char_order).map(|order| (symbols.characters.len(), order));
        let words = (1..=self.word_order).map(|order| (symbols.words.len(), order));
        let orders = characters.chain(words);
        for (counts, (length, order)) in row.chunks_exact_mut(COUNTS_PER_ORDER).zip(orders) {
            each(counts, ngram_total(length, order));
        }
    }
}
