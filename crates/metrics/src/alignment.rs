//! Word alignments compared with human ones (Och and Ney 2003, "A Systematic Comparison of Various
//! Statistical Alignment Models", section 3):
//!
//! ```text
//! precision = |A ∩ P| / |A|,   recall = |A ∩ S| / |S|,
//! AER = 1 − (|A ∩ S| + |A ∩ P|) / (|A| + |S|)
//! ```
//!
//! where AER is the alignment error rate, and A are the predicted links. Of the reference, S are
//! the sure links, and P the sure and possible links. Counts are summed over the corpus. If all
//! links of the reference are sure, 1 − AER is the harmonic mean of precision and recall.

use std::collections::{HashMap, HashSet};
use std::ops::AddAssign;

use serde::Serialize;

/// Indices of a word of the source and of a word of the target.
pub type Link = (u32, u32);

/// Counts of links, summed over sentences.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AlignmentCounts {
    found: u64,
    found_sure: u64,
    found_possible: u64,
    sure: u64,
}

impl AlignmentCounts {
    /// Counts the links of a sentence. Each link of `reference` is paired with true if it is sure,
    /// and with false if it is only possible. A link that occurs several times counts once, and is
    /// sure if any of its entries in `reference` is.
    #[must_use]
    pub fn count(predicted: &[Link], reference: &[(Link, bool)]) -> Self {
        let predicted: HashSet<Link> = predicted.iter().copied().collect();
        let mut links: HashMap<Link, bool> = HashMap::new();
        for &(link, is_sure) in reference {
            *links.entry(link).or_default() |= is_sure;
        }
        let known = predicted.iter().filter_map(|link| links.get(link));
        Self {
            found: predicted.len() as u64,
            found_sure: known.clone().filter(|sure| **sure).count() as u64,
            found_possible: known.count() as u64,
            sure: links.values().filter(|sure| **sure).count() as u64,
        }
    }

    /// Scores in percent; `None` if there is neither a sure link nor a predicted one.
    #[must_use]
    pub fn score(&self) -> Option<AlignmentScore> {
        let share = |part: u64, whole: u64| match whole {
            0 => 100.0,
            _ => 100.0 * part as f64 / whole as f64,
        };
        let both = self.found + self.sure;
        (both > 0).then(|| AlignmentScore {
            precision: share(self.found_possible, self.found),
            recall: share(self.found_sure, self.sure),
            error_rate: 100.0 - share(self.found_sure + self.found_possible, both),
            found: self.found,
            sure: self.sure,
        })
    }
}

impl AddAssign for AlignmentCounts {
    fn add_assign(&mut self, other: Self) {
        self.found += other.found;
        self.found_sure += other.found_sure;
        self.found_possible += other.found_possible;
        self.sure += other.sure;
    }
}

/// Quality of word alignments, in percent.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct AlignmentScore {
    /// Share of predicted links that are sure or possible links of the reference.
    pub precision: f64,
    /// Share of sure links that were predicted.
    pub recall: f64,
    /// Alignment error rate.
    pub error_rate: f64,
    /// Number of predicted links.
    pub found: u64,
    /// Number of sure links of the reference.
    pub sure: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn possible_links_cost_no_precision_and_sure_ones_have_to_be_found() {
        // Computed by hand: A has four links, of which two are sure and one is possible; S has
        // three.
        let reference = [((0, 0), true), ((1, 1), true), ((2, 2), true), ((2, 3), false)];
        let mut counts = AlignmentCounts::count(&[(0, 0), (1, 1), (2, 3), (5, 5)], &reference);
        let score = counts.score().unwrap();
        assert_eq!((score.precision, score.recall.round()), (75.0, 67.0));
        assert!((score.error_rate - 100.0 * (1.0 - (2.0 + 3.0) / (4.0 + 3.0))).abs() < 1e-12);
        // Counts are summed over sentences.
        counts += AlignmentCounts::count(&[(0, 0)], &[((0, 0), true)]);
        assert!((counts.score().unwrap().error_rate - 100.0 * (1.0 - 7.0 / 9.0)).abs() < 1e-12);
    }

    #[test]
    fn a_link_counts_once() {
        let reference = [((0, 0), true), ((1, 1), true), ((1, 1), false), ((1, 2), false)];
        let counts = AlignmentCounts::count(&[(1, 2), (0, 0), (0, 0), (3, 3), (3, 3)], &reference);
        let once = [((0, 0), true), ((1, 1), true), ((1, 2), false)];
        assert_eq!(counts, AlignmentCounts::count(&[(0, 0), (1, 2), (3, 3)], &once));
        assert_eq!(
            (counts.found, counts.found_sure, counts.found_possible, counts.sure),
            (3, 1, 2, 2)
        );
    }

    #[test]
    fn without_links_there_is_no_score() {
        assert_eq!(AlignmentCounts::count(&[], &[]).score(), None);
        let nothing = AlignmentCounts::count(&[], &[((0, 0), true)]).score().unwrap();
        assert_eq!((nothing.precision, nothing.recall, nothing.error_rate), (100.0, 0.0, 100.0));
    }
}
