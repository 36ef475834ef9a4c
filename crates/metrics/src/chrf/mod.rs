//! chrF (Popović, 2015) and chrF++ (Popović, 2017): options, and the score from the counts.

mod counter;
mod expected;
mod score;

pub use score::ChrfScore;

use serde::{Deserialize, Serialize};

use self::counter::ChrfCounter;
use crate::error::{MetricError, Result};
use crate::field::Field;
use crate::metric::{Metric, Segment, SegmentCounter, segments};
use crate::real::{Real, ResampledScore};
use crate::signature::{Signature, Trials};
use crate::statistics::Statistics;

/// Number of statistics for each n-gram order: the number of n-grams in the hypothesis, in the
/// reference, and in both.
pub(crate) const COUNTS_PER_ORDER: usize = 3;

/// Value of an undefined precision or recall under epsilon smoothing.
const EPSILON: f64 = 1e-16;

/// Highest order of n-grams that can be requested. Sentences have almost no n-grams of this length
/// in common.
const HIGHEST_ORDER: usize = 100;

/// Options of chrF. The defaults are chrF2 over character n-grams up to 6.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Chrf {
    /// Largest order n of the character n-grams that are counted.
    pub char_order: usize,
    /// Largest order n of the word n-grams that are counted; 2 makes chrF++.
    pub word_order: usize,
    /// Weight β of recall relative to precision in the F-score.
    pub beta: u32,
    /// Whether to ignore case.
    pub lowercase: bool,
    /// Whether to count whitespace as characters.
    pub whitespace: bool,
    /// Whether to average the F-scores of all orders, with a small constant for undefined ones, as
    /// in the original implementation. Otherwise, precision and recall are averaged over the orders
    /// that exist.
    pub eps_smoothing: bool,
}

impl Default for Chrf {
    fn default() -> Self {
        Self {
            char_order: 6,
            word_order: 0,
            beta: 2,
            lowercase: false,
            whitespace: false,
            eps_smoothing: false,
        }
    }
}

impl Chrf {
    /// Options of chrF++: word n-grams up to 2, in addition to character n-grams.
    pub fn plus_plus() -> Self {
        Self { word_order: 2, ..Self::default() }
    }

    /// Scores a corpus; `references[k][i]` is the k-th reference of hypothesis i.
    ///
    /// # Errors
    /// When there is nothing to score, the line counts differ, or an option is out of range.
    pub fn corpus<S: AsRef<str>>(
        &self,
        hypotheses: &[S],
        references: &[Vec<S>],
    ) -> Result<ChrfScore> {
        self.score(&Statistics::count(self, &segments(hypotheses, references)?)?)
    }

    /// Scores one sentence.
    ///
    /// # Errors
    /// See [`Self::corpus`].
    pub fn sentence<R: AsRef<str>>(&self, hypothesis: &str, references: &[R]) -> Result<ChrfScore> {
        let references = references.iter().map(AsRef::as_ref).collect();
        self.score(&Statistics::count(self, &[Segment { hypothesis, references }])?)
    }

    /// Turns the statistics of a corpus into its score.
    ///
    /// # Errors
    /// When there are no segments, or they were counted with other options.
    pub fn score(&self, statistics: &Statistics) -> Result<ChrfScore> {
        let score = self.value(&statistics.sums(self)?);
        let signature = Signature::new(self, statistics.references(), Trials::default());
        Ok(ChrfScore { score, name: self.name(), signature: signature.to_string() })
    }

    /// Computes the F-score in percent.
    ///
    /// The order of the operations affects the last bits, which decide ties between references.
    pub(crate) fn f_score<R: Real>(&self, sums: &[R]) -> R {
        let factor = R::from_f64(f64::from(self.beta).powi(2));
        let weight = R::from_f64(1.0 + f64::from(self.beta).powi(2));
        let (zero, epsilon) = (R::from_f64(0.0), R::from_f64(EPSILON));
        let ratio_or_epsilon =
            |matches: R, total: R| if total > zero { matches / total } else { epsilon };
        let (mut smoothed, mut precisions, mut recalls) = (zero, zero, zero);
        let mut effective = 0_u32;
        for counts in sums.chunks_exact(COUNTS_PER_ORDER) {
            let (hypothesis, reference, matches) = (counts[0], counts[1], counts[2]);
            let precision = ratio_or_epsilon(matches, hypothesis);
            let recall = ratio_or_epsilon(matches, reference);
            let denominator = factor * precision + recall;
            smoothed += if denominator > zero {
                weight * precision * recall / denominator
            } else {
                epsilon
            };
            if hypothesis > zero && reference > zero {
                precisions += precision;
                recalls += recall;
                effective += 1;
            }
        }
        let percent = R::from_f64(100.0);
        if self.eps_smoothing {
            return percent * smoothed / R::from_f64((self.char_order + self.word_order) as f64);
        }
        if effective == 0 {
            return zero;
        }
        let orders = R::from_f64(f64::from(effective));
        let (precision, recall) = (precisions / orders, recalls / orders);
        if precision + recall == zero {
            return zero;
        }
        percent * (weight * precision * recall / (factor * precision + recall))
    }
}

/// A row of counts has three numbers for each order, first of characters, then of words. They count
/// the n-grams of the hypothesis (0 if the reference is too short to have any), the n-grams of the
/// reference, and the matches.
impl Metric for Chrf {
    /// `chrF`, followed by beta and a `+` for each word order: `chrF2++`.
    fn name(&self) -> String {
        format!("chrF{}{}", self.beta, "+".repeat(self.word_order))
    }

    fn fields(&self) -> Vec<Field> {
        vec![
            Field::case(self.lowercase),
            Field::flag("eff", "e", !self.eps_smoothing),
            Field::new("nc", "nc", self.char_order),
            Field::new("nw", "nw", self.word_order),
            Field::flag("space", "s", self.whitespace),
        ]
    }

    fn check(&self) -> Result<()> {
        if self.char_order == 0 && self.word_order == 0 {
            return Err(MetricError::InvalidOption {
                option: "char_order and word_order",
                value: "0".to_owned(),
                expected: "at least one of them must be 1 or more",
            });
        }
        for (option, order) in [("char_order", self.char_order), ("word_order", self.word_order)] {
            if order > HIGHEST_ORDER {
                return Err(MetricError::InvalidOption {
                    option,
                    value: order.to_string(),
                    expected: "give at most 100",
                });
            }
        }
        Ok(())
    }

    fn columns(&self) -> usize {
        COUNTS_PER_ORDER * (self.char_order + self.word_order)
    }

    fn counter(&self) -> Box<dyn SegmentCounter + '_> {
        Box::new(ChrfCounter::new(self))
    }

    fn value(&self, sums: &[f64]) -> f64 {
        self.f_score(sums)
    }

    fn sample(&self, sums: &[f32]) -> ResampledScore {
        self.f_score(&sums.iter().copied().map(ResampledScore::Single).collect::<Vec<_>>())
    }

    fn details(&self, _sums: &[f64]) -> String {
        String::new()
    }
}
