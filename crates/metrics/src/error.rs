//! What can go wrong when scoring, and what to do about it.

use thiserror::Error;

/// An input or an option that cannot be scored.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum MetricError {
    /// There is no segment to score.
    #[error("there are no segments to score; give at least one hypothesis line")]
    EmptyCorpus,
    /// No reference stream was given.
    #[error("there are no references; give at least one reference file")]
    NoReferences,
    /// A segment was added without any reference.
    #[error("segment {segment} has no reference; each segment needs at least one")]
    SegmentWithoutReference {
        /// One-based number of the segment.
        segment: usize,
    },
    /// A reference stream is not as long as the hypotheses.
    #[error(
        "reference {reference} has {found} lines but the hypotheses have {expected}; \
         line i of each must be the same segment"
    )]
    LineCount {
        /// One-based number of the reference stream.
        reference: usize,
        /// Number of hypothesis lines.
        expected: usize,
        /// Number of lines in this reference stream.
        found: usize,
    },
    /// An option lies outside its range.
    #[error("{option} = {value} is out of range; {expected}")]
    InvalidOption {
        /// Name of the option.
        option: &'static str,
        /// The refused value.
        value: String,
        /// What is allowed.
        expected: &'static str,
    },
    /// A name is not among those known.
    #[error("unknown {kind} {name:?}; choose one of {choices}")]
    UnknownName {
        /// What kind of thing was named.
        kind: &'static str,
        /// The name as given.
        name: String,
        /// The names that exist.
        choices: &'static str,
    },
    /// A tokenizer of sacreBLEU that rests on a model or a dictionary.
    #[error("the tokenizer {name} needs {needs}, which taper does not carry; {instead}")]
    UnsupportedTokenizer {
        /// The tokenizer.
        name: &'static str,
        /// What it needs.
        needs: &'static str,
        /// What to do.
        instead: &'static str,
    },
    /// Statistics of another metric, or counted with other options.
    #[error(
        "statistics of {found} where those of {expected} are needed; \
         count every part with the same metric and options"
    )]
    StatisticsMismatch {
        /// What should have been counted.
        expected: String,
        /// What was counted.
        found: String,
    },
    /// Two systems to compare do not have the same segments.
    #[error(
        "system {system} has {found} segments but the baseline has {expected}; compare \
         translations of the same text"
    )]
    SegmentCount {
        /// One-based number of the system.
        system: usize,
        /// Segments of the baseline.
        expected: usize,
        /// Segments of this system.
        found: usize,
    },
}

/// Checks that every reference stream is as long as the hypotheses, and that both exist.
pub(crate) fn check_line_counts<H, R>(
    hypotheses: &[H],
    references: &[Vec<R>],
) -> Result<(), MetricError> {
    if references.is_empty() {
        return Err(MetricError::NoReferences);
    }
    for (index, reference) in references.iter().enumerate() {
        if reference.len() != hypotheses.len() {
            return Err(MetricError::LineCount {
                reference: index + 1,
                expected: hypotheses.len(),
                found: reference.len(),
            });
        }
    }
    if hypotheses.is_empty() {
        return Err(MetricError::EmptyCorpus);
    }
    Ok(())
}
