//! Types for the results of models on test sets.

mod answered;
mod captioned;
mod classified;
mod hostile;
mod masked;
mod matched;
mod read;
mod regressed;
mod tagged;
mod translated;

use anyhow::Result;
use serde::Serialize;

use crate::finite::require_finite;

pub use answered::AnsweredTestSet;
pub use captioned::CaptionedTestSet;
pub use classified::{CalibrationBin, ClassifiedTestSet, Labelled};
pub use hostile::{HostileScore, HostileScores, HostileTestSet};
pub use masked::MaskedTestSet;
pub use matched::{MatchedTestSet, Recall};
pub use read::ReadTestSet;
pub use regressed::{ExampleErrors, MeanErrors, RegressedTestSet};
pub use tagged::TaggedTestSet;
pub use translated::TranslatedTestSet;

/// Results of a model on a test set, by task.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub enum TestSetResult {
    /// Results of a translation model.
    Translated(Box<TranslatedTestSet>),
    /// Results of a language model.
    Read(ReadTestSet),
    /// Results of a masked language model.
    Masked(MaskedTestSet),
    /// Results of a classifier.
    Classified(ClassifiedTestSet),
    /// Results of a model that describes images.
    Captioned(Box<CaptionedTestSet>),
    /// Results of a model that maps images and texts into one space.
    Matched(MatchedTestSet),
    /// Results of a tagger.
    Tagged(TaggedTestSet),
    /// Results of a question-answering model.
    Answered(AnsweredTestSet),
    /// Results of a model that predicts values of functions from examples.
    Regressed(RegressedTestSet),
}

impl TestSetResult {
    /// Lines of a report for people: first the split, then scores.
    pub fn lines(&self) -> Vec<String> {
        match self {
            Self::Translated(result) => result.lines(),
            Self::Read(result) => result.lines(),
            Self::Masked(result) => result.lines(),
            Self::Classified(result) => result.lines(),
            Self::Captioned(result) => result.lines(),
            Self::Matched(result) => result.lines(),
            Self::Tagged(result) => result.lines(),
            Self::Answered(result) => result.lines(),
            Self::Regressed(result) => result.lines(),
        }
    }

    /// Refuses a result with a number that is not finite. Scores that are computed from counts are
    /// always finite, and are not checked.
    ///
    /// # Errors
    /// If a number is not finite: [`NotFinite`](crate::NotFinite).
    pub(in crate::evaluation) fn require_finite(&self) -> Result<()> {
        match self {
            Self::Read(result) => require_finite("the loss", [result.loss]),
            Self::Masked(result) => require_finite("the loss", [result.loss]),
            Self::Classified(result) => require_finite("the loss", [result.loss]),
            Self::Matched(result) => require_finite("the loss", [result.loss]),
            Self::Regressed(result) => {
                require_finite("the predictions", result.after.iter().map(|at| at.of_answers.model))
            }
            Self::Translated(_) | Self::Captioned(_) | Self::Tagged(_) | Self::Answered(_) => {
                Ok(())
            }
        }
    }

    /// Lines with `count` examples, evenly spread over the set. For a translation model, an example
    /// has source, translation and reference; for a caption model, the number of the image, caption
    /// and reference. Empty for other tasks.
    pub fn sample_translations(&self, count: usize) -> Vec<String> {
        match self {
            Self::Translated(result) => result.sample_translations(count),
            Self::Captioned(result) => result.samples(count),
            Self::Read(_)
            | Self::Masked(_)
            | Self::Classified(_)
            | Self::Matched(_)
            | Self::Tagged(_)
            | Self::Answered(_)
            | Self::Regressed(_) => Vec::new(),
        }
    }
}
