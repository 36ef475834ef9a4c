//! Evaluation of models on test sets, which are decoded and scored, or read.

mod answers;
mod encoders;
mod extrapolation;
mod image_text;
mod measure;
mod regression;
mod scores;
mod state_gradients;
mod tags;
mod test_sets;
mod text;
mod tuning;

pub use answers::AnsweredTestSet;
pub(crate) use encoders::highest;
pub use encoders::{CalibrationBin, ClassifiedTestSet, MaskedTestSet};
pub use extrapolation::{AtLength, Extrapolation, extrapolate, extrapolation_figure};
pub use image_text::{CaptionedTestSet, MatchedTestSet, Recall};
pub use measure::{Evaluation, evaluate};
pub use regression::{AfterExamples, MeanErrors, RegressedTestSet};
pub use scores::TextScores;
pub use state_gradients::{LayerGradients, state_gradients};
pub use tags::TaggedTestSet;
pub(crate) use test_sets::save;
pub use test_sets::{TestSetResult, TranslatedTestSet};
pub use text::ReadTestSet;
pub use tuning::{Trial, Tuning, TuningEvent, TuningGrid, TuningMetric, tune};
