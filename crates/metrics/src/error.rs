//! Errors of scoring, with advice.

use thiserror::Error;

/// An input or an option that cannot be scored.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum MetricError {
    /// There is no segment to score.
    #[error("there are no segments to score; give at least one hypothesis line")]
    EmptyCorpus,
    /// There are no references at all.
    #[error("there are no references; give at least one reference file")]
    NoReferences,
    /// A segment was added without any reference.
    #[error("segment {segment} has no reference; each segment needs at least one")]
    SegmentWithoutReference {
        /// One-based number of the segment.
        segment: usize,
    },
    /// The number of references in one list (such as a file) differs from the number of hypotheses.
    #[error(
        "reference {reference} has {found} lines but the hypotheses have {expected}; \
         line i of each must be the same segment"
    )]
    LineCount {
        /// One-based number of the list of references.
        reference: usize,
        /// Number of hypothesis lines.
        expected: usize,
        /// Number of references in the list.
        found: usize,
    },
    /// An option lies outside its range.
    #[error("{option} = {value} is out of range; {expected}")]
    InvalidOption {
        /// Name of the option.
        option: &'static str,
        /// The rejected value.
        value: String,
        /// Allowed values.
        expected: &'static str,
    },
    /// An unknown name.
    #[error("unknown {kind} {name:?}; choose one of {choices}")]
    UnknownName {
        /// What the name should be, such as `tokenizer`.
        kind: &'static str,
        /// The name in the request.
        name: String,
        /// Known names.
        choices: &'static str,
    },
    /// A tokenizer of sacreBLEU that needs a model or a dictionary.
    #[error("the tokenizer {name} needs {needs}, which taper does not carry; {instead}")]
    UnsupportedTokenizer {
        /// The tokenizer.
        name: &'static str,
        /// Model or dictionary that it needs.
        needs: &'static str,
        /// What the user can do instead.
        instead: &'static str,
    },
    /// The statistics belong to another metric, or were counted with other options.
    #[error(
        "statistics of {found}, but those of {expected} are needed; count every part with the \
         same metric and options"
    )]
    StatisticsMismatch {
        /// Metric and options that were expected.
        expected: String,
        /// Metric and options that were given.
        found: String,
    },
    /// Two systems to compare have different numbers of segments.
    #[error(
        "system {system} has {found} segments but the baseline has {expected}; compare \
         translations of the same text"
    )]
    SegmentCount {
        /// One-based number of the system.
        system: usize,
        /// Number of segments of the baseline.
        expected: usize,
        /// Number of segments of this system.
        found: usize,
    },
}

/// Checks that there are hypotheses and references, and that every list of references is as long as
/// the list of hypotheses.
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

/// Result of scoring.
pub type Result<T, E = MetricError> = std::result::Result<T, E>;
