//! Corpus BLEU (Papineni et al., 2002): options, and the score from the counts.

use serde::{Deserialize, Serialize};

use crate::bleu_counter::{BleuCounter, BleuStatistics};
use crate::bleu_score::BleuScore;
use crate::error::{MetricError, check_line_counts};
use crate::signature::{ReferenceCount, SIGNATURE_VERSION, case_field, yes_no};
use crate::smoothing::Smoothing;
use crate::tokenizer::Tokenizer;

/// Number of hypotheses ending in a detached full stop that suggests tokenized input.
const TOKENIZED_ENDINGS: u64 = 100;

/// Stands for the logarithm of a zero precision, so that the score underflows to 0.
const LOG_OF_ZERO: f64 = -9_999_999_999.0;

/// Options of BLEU. The defaults are those of WMT.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Bleu {
    /// How lines become words.
    pub tokenizer: Tokenizer,
    /// What replaces zero precisions.
    pub smoothing: Smoothing,
    /// Leaves out orders that the hypotheses are too short for; meant for single sentences.
    pub effective_order: bool,
    /// Ignores case.
    pub lowercase: bool,
    /// Accepts hypotheses that look tokenized without remark.
    pub force: bool,
    /// Longest n-gram counted.
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
    /// A counter with nothing counted yet.
    pub fn counter(&self) -> Result<BleuCounter, MetricError> {
        self.check()?;
        Ok(BleuCounter::new(self.clone()))
    }

    /// Scores a corpus; `references[k][i]` is the k-th reference of hypothesis i.
    pub fn corpus<S: AsRef<str>>(&self, hypotheses: &[S], references: &[Vec<S>]) -> Result<BleuScore, MetricError> {
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

    /// Scores one sentence; set `effective_order` for that.
    pub fn sentence<R: AsRef<str>>(&self, hypothesis: &str, references: &[R]) -> Result<BleuScore, MetricError> {
        let mut counter = self.counter()?;
        counter.add(hypothesis, references)?;
        self.score(counter.statistics())
    }

    /// The signature of a score over segments with this many references.
    pub fn signature(&self, references: ReferenceCount) -> String {
        format!(
            "nrefs:{references}|case:{}|eff:{}|tok:{}|smooth:{}|version:{SIGNATURE_VERSION}",
            case_field(self.lowercase),
            yes_no(self.effective_order),
            self.tokenizer,
            self.smoothing,
        )
    }

    /// Turns summed statistics into a score.
    pub fn score(&self, statistics: &BleuStatistics) -> Result<BleuScore, MetricError> {
        self.check()?;
        if statistics.segments == 0 {
            return Err(MetricError::EmptyCorpus);
        }
        for found in [statistics.matches.len(), statistics.totals.len()] {
            if found != self.max_order {
                return Err(MetricError::OrderMismatch { expected: self.max_order, found });
            }
        }
        let brevity_penalty = brevity_penalty(statistics);
        let (precisions, score) = if statistics.matches.iter().all(|&count| count == 0) {
            (vec![0.0; self.max_order], 0.0)
        } else {
            let (precisions, order) = self.precisions(statistics);
            let logarithms: f64 = precisions[..order].iter().map(|&p| floored_log(p)).sum();
            let score = brevity_penalty * (logarithms / order as f64).exp();
            (precisions, score)
        };
        Ok(BleuScore {
            score,
            precisions,
            matches: statistics.matches.clone(),
            totals: statistics.totals.clone(),
            brevity_penalty,
            hypothesis_length: statistics.hypothesis_length,
            reference_length: statistics.reference_length,
            signature: self.signature(statistics.references),
            looks_tokenized: !self.force && statistics.tokenized_endings >= TOKENIZED_ENDINGS,
        })
    }

    /// Smoothed precisions in per cent, and the number of orders to average.
    fn precisions(&self, statistics: &BleuStatistics) -> (Vec<f64>, usize) {
        let mut precisions = vec![0.0; self.max_order];
        let mut order = self.max_order;
        let mut halvings = 1.0;
        let counts = statistics.matches.iter().zip(&statistics.totals);
        for (index, (&matches, &total)) in counts.enumerate() {
            let added = match self.smoothing {
                Smoothing::AddK(value) if index > 0 => value,
                _ => 0.0,
            };
            let (matches, total) = (matches as f64 + added, total as f64 + added);
            if total == 0.0 {
                break;
            }
            if self.effective_order {
                order = index + 1;
            }
            precisions[index] = if matches > 0.0 {
                100.0 * matches / total
            } else {
                match self.smoothing {
                    Smoothing::Exp => {
                        halvings *= 2.0;
                        100.0 / (halvings * total)
                    }
                    Smoothing::Floor(value) => 100.0 * value / total,
                    Smoothing::None | Smoothing::AddK(_) => 0.0,
                }
            };
        }
        (precisions, order)
    }

    /// Refuses options outside their ranges.
    fn check(&self) -> Result<(), MetricError> {
        if self.max_order == 0 {
            return Err(MetricError::InvalidOption { option: "max_order", value: self.max_order.to_string(), expected: "give 1 or more" });
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
}

/// Penalty for hypotheses shorter than their references.
fn brevity_penalty(statistics: &BleuStatistics) -> f64 {
    let hypothesis = statistics.hypothesis_length as f64;
    let reference = statistics.reference_length as f64;
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
