//! Validation: the trait that callers implement, and scores for which no decoding is needed.

use taper_model::{Batch, Model, Objective, Pass};

use crate::{BoxError, Sample, Scores, TrainError};

/// Scores the model on data on which it is not trained.
///
/// If a moving average of the weights is configured, the model that is scored has the averaged
/// weights.
pub trait Validator<M: Model> {
    /// Returns the scores of `model` after `step` updates.
    ///
    /// # Errors
    /// If the model cannot be scored. This ends training.
    fn validate(&mut self, model: &M, step: u64) -> Result<Scores, BoxError>;

    /// Returns examples of the model's output in the last validation.
    fn samples(&mut self) -> Vec<Sample> {
        Vec::new()
    }
}

/// Validator without scores, for training without a best checkpoint and without early stopping.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoValidation;

impl<M: Model> Validator<M> for NoValidation {
    fn validate(&mut self, _model: &M, _step: u64) -> Result<Scores, BoxError> {
        Ok(Scores::default())
    }
}

/// Means over the target tokens of scores with teacher forcing (each token is predicted from the
/// true tokens before it).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TeacherForced {
    /// Label-smoothed cross entropy, in nats.
    pub loss: f64,
    /// Cross entropy, in nats.
    pub nll: f64,
    /// Exponential of `nll`.
    pub perplexity: f64,
    /// Share of target tokens that are predicted correctly.
    pub accuracy: f64,
    /// Number of target tokens.
    pub tokens: u64,
    /// Whether the model predicts classes, such as tokens or labels. If it predicts numbers, the
    /// loss is the squared error, and perplexity and accuracy have no meaning.
    pub of_classes: bool,
}

impl TeacherForced {
    /// Returns the scores by name: `loss` and, if the model predicts classes, `nll`, `perplexity`
    /// and `accuracy`.
    #[must_use]
    pub fn scores(&self) -> Scores {
        let mut scores = Scores::default();
        scores.insert("loss", self.loss);
        if self.of_classes {
            scores.insert("nll", self.nll);
            scores.insert("perplexity", self.perplexity);
            scores.insert("accuracy", self.accuracy);
        }
        scores
    }
}

/// Scores `model` on `batches`, without dropout. The scores are means over all target tokens, not
/// means over batches.
///
/// # Errors
/// If a batch cannot be read or computed, or there are no target tokens.
pub fn evaluate<M: Model>(
    model: &M,
    batches: impl IntoIterator<Item = Result<Batch, BoxError>>,
    label_smoothing: f64,
) -> Result<TeacherForced, TrainError> {
    evaluate_under(model, batches, label_smoothing, Pass::evaluate)
}

/// Scores like [`evaluate`]. `pass` returns the settings of the forward pass for each batch.
///
/// # Errors
/// See [`evaluate`].
pub fn evaluate_under<M: Model>(
    model: &M,
    batches: impl IntoIterator<Item = Result<Batch, BoxError>>,
    label_smoothing: f64,
    pass: impl Fn() -> Pass,
) -> Result<TeacherForced, TrainError> {
    let (mut smoothed, mut nll, mut correct, mut tokens) = (0.0, 0.0, 0u64, 0u64);
    for (index, batch) in batches.into_iter().enumerate() {
        let index = index as u64;
        let batch = batch.map_err(|source| TrainError::Source { epoch: 0, index, source })?;
        let output =
            model.loss(&batch, &Objective::smoothed(label_smoothing), 1.0, &pass()).map_err(
                |error| TrainError::Compute { action: "validate", step: 0, source: error.into() },
            )?;
        smoothed += output.smoothed_sum;
        nll += output.nll_sum;
        correct += output.correct as u64;
        tokens += output.tokens as u64;
    }
    if tokens == 0 {
        return Err(TrainError::NoData { epoch: 0, index: 0 });
    }
    let count = tokens as f64;
    let nll = nll / count;
    Ok(TeacherForced {
        loss: smoothed / count,
        nll,
        perplexity: nll.exp(),
        accuracy: correct as f64 / count,
        tokens,
        of_classes: M::predicts_classes(),
    })
}
