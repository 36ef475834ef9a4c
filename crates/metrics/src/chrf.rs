//! chrF (Popović, 2015) and chrF++ (Popović, 2017): options, and the score from the counts.

use serde::{Deserialize, Serialize};

use crate::chrf_counter::{ChrfCounter, ChrfStatistics, OrderCounts};
use crate::chrf_score::ChrfScore;
use crate::error::{MetricError, check_line_counts};
use crate::signature::{ReferenceCount, SIGNATURE_VERSION, case_field, yes_no};

/// Stands for an undefined precision or recall under epsilon smoothing.
const EPSILON: f64 = 1e-16;

/// Options of chrF. The defaults are chrF2 over character n-grams up to 6.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Chrf {
    /// Longest character n-gram.
    pub char_order: usize,
    /// Longest word n-gram; 2 makes chrF++.
    pub word_order: usize,
    /// Weight of recall against precision.
    pub beta: u32,
    /// Ignores case.
    pub lowercase: bool,
    /// Counts whitespace as characters.
    pub whitespace: bool,
    /// Averages F-scores over all orders with a small constant for undefined ones, as the
    /// original implementation does, instead of averaging over the orders that exist.
    pub eps_smoothing: bool,
}

impl Default for Chrf {
    fn default() -> Self {
        Self { char_order: 6, word_order: 0, beta: 2, lowercase: false, whitespace: false, eps_smoothing: false }
    }
}

impl Chrf {
    /// The options of chrF++: word n-grams up to 2 besides the characters.
    pub fn plus_plus() -> Self {
        Self { word_order: 2, ..Self::default() }
    }

    /// `chrF`, beta, and a `+` for each word order: `chrF2++`.
    pub fn name(&self) -> String {
        format!("chrF{}{}", self.beta, "+".repeat(self.word_order))
    }

    /// A counter with nothing counted yet.
    pub fn counter(&self) -> Result<ChrfCounter, MetricError> {
        self.check()?;
        Ok(ChrfCounter::new(self.clone()))
    }

    /// Scores a corpus; `references[k][i]` is the k-th reference of hypothesis i.
    pub fn corpus<S: AsRef<str>>(&self, hypotheses: &[S], references: &[Vec<S>]) -> Result<ChrfScore, MetricError> {
        check_line_counts(hypotheses, references)?;
        let mut counter = self.counter()?;
        let mut segment: Vec<&str> = Vec::with_capacity(references.len());
        for (index, hypothesis) in hypotheses.iter().enumerate() {
            segment.clear();
            segment.extend(references.iter().map(|stream| stream[index].as_ref()));
            counter.add(hypothesis.as_ref(), &segment)?;
        }
        self.score(counter.statistics())
    }

    /// Scores one sentence.
    pub fn sentence<R: AsRef<str>>(&self, hypothesis: &str, references: &[R]) -> Result<ChrfScore, MetricError> {
        let mut counter = self.counter()?;
        counter.add(hypothesis, references)?;
        self.score(counter.statistics())
    }

    /// The signature of a score over segments with this many references.
    pub fn signature(&self, references: ReferenceCount) -> String {
        format!(
            "nrefs:{references}|case:{}|eff:{}|nc:{}|nw:{}|space:{}|version:{SIGNATURE_VERSION}",
            case_field(self.lowercase),
            yes_no(!self.eps_smoothing),
            self.char_order,
            self.word_order,
            yes_no(self.whitespace),
        )
    }

    /// Turns summed statistics into a score.
    pub fn score(&self, statistics: &ChrfStatistics) -> Result<ChrfScore, MetricError> {
        self.check()?;
        if statistics.segments == 0 {
            return Err(MetricError::EmptyCorpus);
        }
        let expected = self.char_order + self.word_order;
        if statistics.orders.len() != expected {
            return Err(MetricError::OrderMismatch { expected, found: statistics.orders.len() });
        }
        Ok(ChrfScore { score: self.f_score(&statistics.orders), name: self.name(), signature: self.signature(statistics.references) })
    }

    /// The F-score in per cent.
    ///
    /// The order of the operations is part of the result: it decides ties between
    /// references.
    pub(crate) fn f_score(&self, orders: &[OrderCounts]) -> f64 {
        let factor = f64::from(self.beta).powi(2);
        let (mut smoothed, mut precisions, mut recalls) = (0.0, 0.0, 0.0);
        let mut effective = 0_u32;
        for counts in orders {
            let precision = ratio_or_epsilon(counts.matches, counts.hypothesis);
            let recall = ratio_or_epsilon(counts.matches, counts.reference);
            let denominator = factor * precision + recall;
            smoothed += if denominator > 0.0 { (1.0 + factor) * precision * recall / denominator } else { EPSILON };
            if counts.hypothesis > 0 && counts.reference > 0 {
                precisions += precision;
                recalls += recall;
                effective += 1;
            }
        }
        if self.eps_smoothing {
            return 100.0 * smoothed / orders.len() as f64;
        }
        if effective == 0 {
            return 0.0;
        }
        let precision = precisions / f64::from(effective);
        let recall = recalls / f64::from(effective);
        if precision + recall == 0.0 {
            return 0.0;
        }
        let product = (1.0 + factor) * precision * recall;
        100.0 * (product / (factor * precision + recall))
    }

    /// Refuses options outside their ranges.
    fn check(&self) -> Result<(), MetricError> {
        if self.char_order == 0 && self.word_order == 0 {
            return Err(MetricError::InvalidOption {
                option: "char_order and word_order",
                value: "0".to_owned(),
                expected: "at least one of them must be 1 or more",
            });
        }
        Ok(())
    }
}

fn ratio_or_epsilon(matches: u64, total: u64) -> f64 {
    if total > 0 { matches as f64 / total as f64 } else { EPSILON }
}
