//! Evaluation of models on test sets. Depending on the task, a model writes or predicts something
//! that is scored, or the probability of the text is measured.

mod answers;
mod classes;
mod extrapolation;
mod hostile;
mod image_text;
mod measure;
mod parallel_text;
mod regression;
mod results;
mod saving;
mod scores;
mod split;
mod state_gradients;
mod tags;
mod text;
mod translations;
mod tuning;

pub use extrapolation::{
    Extrapolation, ExtrapolationSettings, LengthMeasurement, Passkey, PasskeyRecall, extrapolate,
    extrapolation_figure, passkey_figure,
};
pub use hostile::evaluate_hostile;
pub(crate) use measure::of_split;
pub use measure::{Evaluation, evaluate};
pub use parallel_text::ParallelText;
pub use results::{
    AnsweredTestSet, CalibrationBin, CaptionedTestSet, ClassifiedTestSet, ExampleErrors,
    HostileScore, HostileScores, HostileTestSet, Labelled, MaskedTestSet, MatchedTestSet,
    MeanErrors, ReadTestSet, Recall, RegressedTestSet, TaggedTestSet, TestSetResult,
    TranslatedTestSet,
};
pub(crate) use saving::save;
pub use scores::TextScores;
pub use split::{Batches, Split};
pub use state_gradients::{LayerGradients, state_gradients};
pub use tuning::{
    Trial, TrialScores, TunedWeights, Tuning, TuningEvent, TuningGrid, TuningMetric, Values,
    WeightTrial, tune, tune_weights,
};
