//! Statistics of a corpus, from which its score is computed: one row of counts for each segment.
//! They are counted on all threads.

use rayon::prelude::*;

use crate::error::{MetricError, Result};
use crate::metric::{Metric, Segment, SegmentCounter};
use crate::signature::ReferenceCount;

/// Number of segments that a thread counts before it takes more.
const SEGMENTS_PER_TASK: usize = 128;

/// Number of hypotheses that must end in a detached full stop for the input to count as tokenized.
const TOKENIZED_ENDINGS: u64 = 100;

/// Counts of a metric for each segment of a corpus. Counts are summed, never averaged. If the
/// statistics of parts of a corpus are appended in order, they equal the statistics of the whole.
#[derive(Debug, Clone, PartialEq)]
pub struct Statistics {
    /// Text that identifies the counts; see [`Metric::counted`].
    counted: String,
    columns: usize,
    /// Values, row by row. They are integers, which doubles represent exactly, except TER's mean
    /// lengths of several references.
    values: Vec<f64>,
    references: ReferenceCount,
    tokenized_endings: u64,
}

impl Statistics {
    /// Makes empty statistics.
    pub fn new(metric: &dyn Metric) -> Self {
        Self {
            counted: metric.counted(),
            columns: metric.columns(),
            values: Vec::new(),
            references: ReferenceCount::Unknown,
            tokenized_endings: 0,
        }
    }

    /// Counts segments.
    ///
    /// # Errors
    /// When an option of the metric is out of range, or a segment has no reference.
    pub fn count(metric: &dyn Metric, segments: &[Segment<'_>]) -> Result<Self> {
        metric.check()?;
        if let Some(index) = segments.iter().position(|segment| segment.references.is_empty()) {
            return Err(MetricError::SegmentWithoutReference { segment: index + 1 });
        }
        let columns = metric.columns();
        let mut values = vec![0.0; segments.len() * columns];
        let count = |counter: &mut Box<dyn SegmentCounter + '_>,
                     (segments, rows): (&[Segment<'_>], &mut [f64])| {
            for (segment, row) in segments.iter().zip(rows.chunks_exact_mut(columns)) {
                counter.count(segment, row);
            }
        };
        if segments.len() <= SEGMENTS_PER_TASK {
            count(&mut metric.counter(), (segments, &mut values));
        } else {
            // Each row has a fixed place, so the order of threads does not matter.
            let rows = values.par_chunks_mut(SEGMENTS_PER_TASK * columns);
            segments
                .par_chunks(SEGMENTS_PER_TASK)
                .zip(rows)
                .for_each_init(|| metric.counter(), count);
        }
        let counts = segments.iter().map(|segment| ReferenceCount::Fixed(segment.references.len()));
        Ok(Self {
            counted: metric.counted(),
            columns,
            values,
            references: counts.fold(ReferenceCount::Unknown, ReferenceCount::combine),
            tokenized_endings: segments
                .iter()
                .filter(|segment| segment.hypothesis.ends_with(" ."))
                .count() as u64,
        })
    }

    /// Appends the statistics of more segments.
    ///
    /// # Errors
    /// When the other statistics were counted with another metric or other options.
    pub fn append(&mut self, other: &Self) -> Result<()> {
        if self.counted != other.counted {
            return Err(MetricError::StatisticsMismatch {
                expected: self.counted.clone(),
                found: other.counted.clone(),
            });
        }
        self.values.extend_from_slice(&other.values);
        self.references = self.references.combine(other.references);
        self.tokenized_endings += other.tokenized_endings;
        Ok(())
    }

    /// Number of segments counted.
    pub fn segments(&self) -> usize {
        self.values.len() / self.columns
    }

    /// Number of references of each segment.
    pub fn references(&self) -> ReferenceCount {
        self.references
    }

    /// True if the hypotheses look tokenized: if at least a hundred of them end in a space and a
    /// full stop. Their scores are then not comparable.
    pub fn look_tokenized(&self) -> bool {
        self.tokenized_endings >= TOKENIZED_ENDINGS
    }

    /// Rows of counts, one for each segment.
    pub fn rows(&self) -> impl Iterator<Item = &[f64]> {
        self.values.chunks_exact(self.columns)
    }

    /// Sums of the counts over all segments, added in order.
    ///
    /// # Errors
    /// When there are no segments, or they were counted with other options.
    pub fn sums(&self, metric: &dyn Metric) -> Result<Vec<f64>> {
        self.check(metric)?;
        let mut sums = vec![0.0; self.columns];
        for row in self.rows() {
            for (sum, value) in sums.iter_mut().zip(row) {
                *sum += value;
            }
        }
        Ok(sums)
    }

    /// Refuses statistics that `metric` cannot score.
    pub(crate) fn check(&self, metric: &dyn Metric) -> Result<()> {
        metric.check()?;
        if self.counted != metric.counted() {
            return Err(MetricError::StatisticsMismatch {
                expected: metric.counted(),
                found: self.counted.clone(),
            });
        }
        if self.values.is_empty() {
            return Err(MetricError::EmptyCorpus);
        }
        Ok(())
    }
}
