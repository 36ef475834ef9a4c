//! Corpus BLEU (Papineni et al., 2002): options, and the score from the counts.

mod counter;
mod score;
mod smoothing;

pub use score::BleuScore;
pub use smoothing::Smoothing;

use serde::{Deserialize, Serialize};

use self::counter::BleuCounter;
use crate::error::{MetricError, Result};
use crate::field::Field;
use crate::metric::{Metric, Segment, SegmentCounter, segments};
use crate::real::{Real, ResampledScore};
use crate::signature::{Signature, Trials};
use crate::statistics::Statistics;
use crate::text::Tokenizer;

/// Value that is used as the logarithm of a precision of 0. It is so low that the score becomes 0.
const LOG_OF_ZERO: f64 = -9_999_999_999.0;

/// Highest order of n-grams that can be requested.
const HIGHEST_ORDER: usize = 100;

/// Options of BLEU. The defaults are those of the shared tasks of WMT (Conference on Machine
/// Translation).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Bleu {
    /// Tokenizer of hypotheses and references.
    pub tokenizer: Tokenizer,
    /// Replacement of zero precisions.
    pub smoothing: Smoothing,
    /// Whether to omit orders for which the hypotheses are too short; meant for single sentences.
    pub effective_order: bool,
    /// Whether to ignore case.
    pub lowercase: bool,
    /// Whether to accept, without a warning, hypotheses that look tokenized.
    pub force: bool,
    /// Largest order n of the n-grams that are counted.
    pub max_order: usize,
}

impl Default for Bleu {
    fn default() -> Self {
        Self {
            tokenizer: Tokenizer::default(),
            smoothing: Smoothing::default(),
            effective_order: false,
            lowercase: false,
            force: false,
            max_order: 4,
        }
    }
}

impl Bleu {
    /// Scores a corpus; `references[k][i]` is the k-th reference of hypothesis i.
    ///
    /// # Errors
    /// When there is nothing to score, the line counts differ, or an option is out of range.
    pub fn corpus<S: AsRef<str>>(
        &self,
        hypotheses: &[S],
        references: &[Vec<S>],
    ) -> Result<BleuScore> {
        self.score(&Statistics::count(self, &segments(hypotheses, references)?)?)
    }

    /// Scores one sentence, for which `effective_order` should be set.
    ///
    /// # Errors
    /// See [`Self::corpus`].
    pub fn sentence<R: AsRef<str>>(&self, hypothesis: &str, references: &[R]) -> Result<BleuScore> {
        let references = references.iter().map(AsRef::as_ref).collect();
        self.score(&Statistics::count(self, &[Segment { hypothesis, references }])?)
    }

    /// Turns the statistics of a corpus into its score.
    ///
    /// # Errors
    /// When there are no segments, or they were counted with other options.
    pub fn score(&self, statistics: &Statistics) -> Result<BleuScore> {
        let sums = statistics.sums(self)?;
        let signature = Signature::new(self, statistics.references(), Trials::default());
        let looks_tokenized = !self.force && statistics.look_tokenized();
        Ok(BleuScore {
            signature: signature.to_string(),
            looks_tokenized,
            ..self.score_of_sums(&sums)
        })
    }

    /// Computes the score from sums, with an empty signature.
    fn score_of_sums(&self, sums: &[f64]) -> BleuScore {
        let counts = |values: &[f64]| values.iter().map(|&count| count as u64).collect();
        let (matches, totals) = sums[2..].split_at(self.max_order);
        let (precisions, order) = self.precisions(matches, totals);
        BleuScore {
            score: self.combine(sums, &precisions[..order]),
            precisions,
            matches: counts(matches),
            totals: counts(totals),
            brevity_penalty: brevity_penalty(sums[0], sums[1]),
            hypothesis_length: sums[0] as u64,
            reference_length: sums[1] as u64,
            signature: String::new(),
            looks_tokenized: false,
        }
    }

    /// Returns the smoothed precisions in percent, and the number of orders to average. If there is
    /// no match of any order, this number is 0.
    fn precisions<R: Real>(&self, matches: &[R], totals: &[R]) -> (Vec<R>, usize) {
        let zero = R::from_f64(0.0);
        let mut precisions = vec![zero; self.max_order];
        if matches.iter().all(|&count| count == zero) {
            return (precisions, 0);
        }
        let mut order = self.max_order;
        let mut halvings = 1.0;
        for (index, (&matches, &total)) in matches.iter().zip(totals).enumerate() {
            let added = match self.smoothing {
                Smoothing::AddK(value) if index > 0 => R::from_f64(value),
                _ => zero,
            };
            let (matches, total) = (matches + added, total + added);
            if total == zero {
                break;
            }
            if self.effective_order {
                order = index + 1;
            }
            precisions[index] = if matches > zero {
                R::from_f64(100.0) * matches / total
            } else {
                match self.smoothing {
                    Smoothing::Exp => {
                        halvings *= 2.0;
                        R::from_f64(100.0) / (R::from_f64(halvings) * total)
                    }
                    Smoothing::Floor(value) => R::from_f64(100.0 * value) / total,
                    Smoothing::None | Smoothing::AddK(_) => zero,
                }
            };
        }
        (precisions, order)
    }

    /// Geometric mean of the precisions, times the brevity penalty.
    fn combine<R: Real>(&self, sums: &[R], precisions: &[R]) -> f64 {
        if precisions.is_empty() {
            return 0.0;
        }
        let logarithms: f64 =
            precisions.iter().map(|precision| floored_log(precision.wide())).sum();
        brevity_penalty(sums[0].wide(), sums[1].wide())
            * (logarithms / precisions.len() as f64).exp()
    }
}

/// A row of counts begins with the lengths of the hypothesis and of the closest reference. Then
/// follow the number of matches of each order, and the number of n-grams of each order in the
/// hypothesis.
impl Metric for Bleu {
    fn name(&self) -> String {
        "BLEU".to_owned()
    }

    fn fields(&self) -> Vec<Field> {
        vec![
            Field::case(self.lowercase),
            Field::flag("eff", "e", self.effective_order),
            Field::new("tok", "tok", self.tokenizer),
            Field::new("smooth", "s", self.smoothing),
        ]
    }

    fn check(&self) -> Result<()> {
        if !(1..=HIGHEST_ORDER).contains(&self.max_order) {
            return Err(MetricError::InvalidOption {
                option: "max_order",
                value: self.max_order.to_string(),
                expected: "give 1 to 100",
            });
        }
        if let Smoothing::Floor(value) | Smoothing::AddK(value) = self.smoothing
            && !(value.is_finite() && value >= 0.0)
        {
            return Err(MetricError::InvalidOption {
                option: "smoothing value",
                value: value.to_string(),
                expected: "give a finite number, 0 or more",
            });
        }
        Ok(())
    }

    fn columns(&self) -> usize {
        2 + 2 * self.max_order
    }

    /// Identifies the counts. Smoothing and effective order change only the score of sums, not the
    /// counts.
    fn counted(&self) -> String {
        format!(
            "BLEU|{}|tok:{}|order:{}",
            Field::case(self.lowercase),
            self.tokenizer,
            self.max_order
        )
    }

    fn counter(&self) -> Box<dyn SegmentCounter + '_> {
        Box::new(BleuCounter::new(self))
    }

    fn value(&self, sums: &[f64]) -> f64 {
        self.score_of_sums(sums).score
    }

    /// Computes the score of a shuffle in a significance test. In such a test, sacreBLEU adds the
    /// constant k of add-k smoothing to a NumPy array of integers. This drops the fraction of k,
    /// and so does this function.
    fn shuffled_value(&self, sums: &[f64]) -> f64 {
        match self.smoothing {
            Smoothing::AddK(value) => {
                Self { smoothing: Smoothing::AddK(value.trunc()), ..self.clone() }.value(sums)
            }
            _ => self.value(sums),
        }
    }

    fn sample(&self, sums: &[f32]) -> ResampledScore {
        let (matches, totals) = sums[2..].split_at(self.max_order);
        let (precisions, order) = self.precisions(matches, totals);
        // The logarithms, and all results computed from them, are in double precision again.
        ResampledScore::Double(self.combine(sums, &precisions[..order]))
    }

    fn details(&self, sums: &[f64]) -> String {
        self.score_of_sums(sums).details()
    }
}

/// Penalty for hypotheses shorter than their references.
fn brevity_penalty(hypothesis: f64, reference: f64) -> f64 {
    if hypothesis >= reference {
        1.0
    } else if hypothesis > 0.0 {
        (1.0 - reference / hypothesis).exp()
    } else {
        0.0
    }
}

fn floored_log(value: f64) -> f64 {
    if value == 0.0 { LOG_OF_ZERO } else { value.ln() }
}
