//! Interface of all metrics: each segment gives a row of statistics, rows add up, and a sum of rows
//! gives a score.
//!
//! Code that is not specific to one metric uses only this interface: parallel counting
//! ([`crate::Statistics`]), significance tests ([`crate::resampling`]), and printing
//! ([`crate::Score`]).

use crate::error::{MetricError, Result, check_line_counts};
use crate::field::Field;
use crate::real::ResampledScore;

/// A metric with its options.
pub trait Metric: Send + Sync {
    /// Name, such as `BLEU`, `chrF2++` or `TER`.
    fn name(&self) -> String;

    /// Fields of a signature that this metric adds, in order.
    fn fields(&self) -> Vec<Field>;

    /// Refuses options outside their ranges.
    ///
    /// # Errors
    /// When an option is out of range; the error names the option, its value and the allowed
    /// values.
    fn check(&self) -> Result<()>;

    /// Number of statistics of a segment.
    fn columns(&self) -> usize;

    /// Text that identifies the statistics: the metric, and its options that affect the counts.
    fn counted(&self) -> String {
        let fields: String = self.fields().iter().map(|field| format!("|{field}")).collect();
        self.name() + &fields
    }

    /// Makes a counter of segments with its working space; each thread needs its own.
    fn counter(&self) -> Box<dyn SegmentCounter + '_>;

    /// Computes the score from the sums of a corpus.
    fn value(&self, sums: &[f64]) -> f64;

    /// Computes the score from the sums of a shuffle (a random exchange of segments between two
    /// systems). It can differ from the score of a corpus with the same sums.
    fn shuffled_value(&self, sums: &[f64]) -> f64 {
        self.value(sums)
    }

    /// Computes the score from the sums of a resample (segments drawn with replacement), which are
    /// in single precision. The computation uses the precision of the reference implementation,
    /// sacreBLEU.
    fn sample(&self, sums: &[f32]) -> ResampledScore;

    /// Text to print after the score: the quantities that it was computed from, or nothing.
    fn details(&self, sums: &[f64]) -> String;
}

/// Counter that turns segments into rows of statistics.
pub trait SegmentCounter {
    /// Writes the statistics of a segment, which has at least one reference, over `row`.
    fn count(&mut self, segment: &Segment<'_>, row: &mut [f64]);
}

/// A hypothesis with its references.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment<'a> {
    /// Scored text.
    pub hypothesis: &'a str,
    /// Texts for comparison.
    pub references: Vec<&'a str>,
}

/// Makes the segments of a corpus; `references[k][i]` is the k-th reference of hypothesis i.
///
/// # Errors
/// When there are no hypotheses or no references, or when a list in `references` is not as long as
/// `hypotheses`.
pub fn segments<'a, S: AsRef<str>>(
    hypotheses: &'a [S],
    references: &'a [Vec<S>],
) -> Result<Vec<Segment<'a>>> {
    check_line_counts(hypotheses, references)?;
    let segment = |(index, hypothesis): (usize, &'a S)| Segment {
        hypothesis: hypothesis.as_ref(),
        references: references.iter().map(|stream| stream[index].as_ref()).collect(),
    };
    Ok(hypotheses.iter().enumerate().map(segment).collect())
}

/// Makes the segments of a corpus whose hypotheses have different numbers of references:
/// `references[k][i]` is `None` if hypothesis i lacks the k-th reference.
///
/// # Errors
/// Errors of [`segments`], and when a segment has no reference at all.
pub fn ragged_segments<'a, S: AsRef<str>>(
    hypotheses: &'a [S],
    references: &'a [Vec<Option<S>>],
) -> Result<Vec<Segment<'a>>> {
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
