//! Expected scores, for minimum Bayes risk decoding, which chooses a hypothesis by them. Hypotheses
//! are compared with other likely translations instead of a reference (Kumar and Byrne 2004,
//! "Minimum Bayes-Risk Decoding for Statistical Machine Translation"; Eikema and Aziz 2022,
//! "Sampling-Based Approximations to Minimum Bayes Risk Decoding for Neural Machine Translation").

use crate::error::{MetricError, Result};
use crate::metric::{Metric, Segment};

/// A likely translation, which is used as a reference.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WeightedReference<'a> {
    /// The text.
    pub text: &'a str,
    /// Weight in the mean, above 0, such as the number of times that the text was sampled.
    pub weight: f64,
}

/// For each hypothesis, the weighted mean of its sentence scores against the single references. A
/// mean is from 0 to 100 for BLEU and chrF. Every hypothesis is compared with every reference.
///
/// # Errors
/// When an option of the metric is out of range, or there is no reference.
pub fn expected_scores(
    metric: &dyn Metric,
    hypotheses: &[&str],
    references: &[WeightedReference<'_>],
) -> Result<Vec<f64>> {
    metric.check()?;
    check(references)?;
    let mut counter = metric.counter();
    let mut row = vec![0.0; metric.columns()];
    let mut score = |hypothesis, reference| {
        counter.count(&Segment { hypothesis, references: vec![reference] }, &mut row);
        metric.value(&row)
    };
    let total: f64 = references.iter().map(|reference| reference.weight).sum();
    let expected = hypotheses.iter().map(|hypothesis| {
        let scores = references.iter().map(|one| one.weight * score(hypothesis, one.text));
        scores.sum::<f64>() / total
    });
    Ok(expected.collect())
}

/// Refuses an empty list of references.
pub(crate) fn check(references: &[WeightedReference<'_>]) -> Result<()> {
    match references.is_empty() {
        true => Err(MetricError::SegmentWithoutReference { segment: 1 }),
        false => Ok(()),
    }
}
