//! The shape that all metrics share: each segment gives a row of statistics, rows add up,
//! and a sum of rows gives a score.
//!
//! Everything that is not particular to one metric works on that shape alone: counting in
//! parallel ([`crate::Statistics`]), confidence intervals and significance tests
//! ([`crate::resampling`]), signatures and printing ([`crate::Score`]).

use crate::error::{MetricError, check_line_counts};
use crate::real::ResampledScore;
use crate::signature::Field;

/// A metric with its options.
pub trait Metric: Send + Sync {
    /// `BLEU`, `chrF2++`, `TER`.
    fn name(&self) -> String;

    /// The metric's own fields of a signature, in order.
    fn fields(&self) -> Vec<Field>;

    /// Refuses options outside their ranges.
    ///
    /// # Errors
    /// Names the option, its value and what is allowed.
    fn check(&self) -> Result<(), MetricError>;

    /// How many statistics a segment has.
    fn columns(&self) -> usize;

    /// What is counted: the metric, and those of its options by which a segment's statistics may be
    /// others.
    fn counted(&self) -> String {
        let fields: String = self.fields().iter().map(|field| format!("|{field}")).collect();
        self.name() + &fields
    }

    /// Working space to count segments with, one for each thread.
    fn counter(&self) -> Box<dyn SegmentCounter + '_>;

    /// The score that the sums of a corpus make.
    fn value(&self, sums: &[f64]) -> f64;

    /// The score that the sums of a shuffle make, where it is another for the same sums.
    fn shuffled_value(&self, sums: &[f64]) -> f64 {
        self.value(sums)
    }

    /// The score that single-precision sums of a resample make, as precise as the reference
    /// implementation leaves it.
    fn sample(&self, sums: &[f32]) -> ResampledScore;

    /// What is printed after the score: the quantities it was made from, or nothing.
    fn details(&self, sums: &[f64]) -> String;
}

/// Turns segments into rows of statistics.
pub trait SegmentCounter {
    /// Writes the statistics of a segment, which has at least one reference, over `row`.
    fn count(&mut self, segment: &Segment<'_>, row: &mut [f64]);
}

/// A hypothesis with the references that it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment<'a> {
    /// What is scored.
    pub hypothesis: &'a str,
    /// What it is compared with.
    pub references: Vec<&'a str>,
}

/// The segments of a corpus; `references[k][i]` is the k-th reference of hypothesis i.
///
/// # Errors
/// When there is nothing to score, no reference, or a reference stream of another length.
pub fn segments<'a, S: AsRef<str>>(
    hypotheses: &'a [S],
    references: &'a [Vec<S>],
) -> Result<Vec<Segment<'a>>, MetricError> {
    check_line_counts(hypotheses, references)?;
    let segment = |(index, hypothesis): (usize, &'a S)| Segment {
        hypothesis: hypothesis.as_ref(),
        references: references.iter().map(|stream| stream[index].as_ref()).collect(),
    };
    Ok(hypotheses.iter().enumerate().map(segment).collect())
}

/// The segments of a corpus whose hypotheses have different numbers of references: a
/// missing line is `None`.
///
/// # Errors
/// As [`segments`], and when a segment has no reference at all.
pub fn ragged_segments<'a, S: AsRef<str>>(
    hypotheses: &'a [S],
    references: &'a [Vec<Option<S>>],
) -> Result<Vec<Segment<'a>>, MetricError> {
    check_line_counts(hypotheses, references)?;
    let segment = |(index, hypothesis): (usize, &'a S)| {
        let references: Vec<&str> = references
            .iter()
            .filter_map(|stream| stream[index].as_ref().map(AsRef::as_ref))
            .collect();
        if references.is_empty() {
            return Err(MetricError::SegmentWithoutReference { segment: index + 1 });
        }
        Ok(Segment { hypothesis: hypothesis.as_ref(), references })
    };
    hypotheses.iter().enumerate().map(segment).collect()
}
