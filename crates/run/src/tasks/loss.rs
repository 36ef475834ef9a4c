//! Validation by the loss, for tasks without a score of their own.

use std::sync::Arc;

use taper_data::{BatchingConfig, Dataset};
use taper_model::Model;
use taper_trainer::{BoxError, Scores, Validator, evaluate};

use crate::config::RunConfig;
use crate::training::in_order;

/// Validator that computes the loss of a model on the whole validation split.
pub(super) struct LossValidation {
    dataset: Arc<dyn Dataset>,
    batching: BatchingConfig,
    label_smoothing: f64,
}

impl LossValidation {
    pub(super) fn new(config: &RunConfig, dataset: Arc<dyn Dataset>) -> Self {
        let batching = config.data.batching.clone();
        Self { dataset, batching, label_smoothing: config.training.label_smoothing }
    }
}

impl<M: Model> Validator<M> for LossValidation {
    fn validate(&mut self, model: &M, _step: u64) -> Result<Scores, BoxError> {
        let batches = in_order(&self.dataset, &self.batching);
        Ok(evaluate(model, batches, self.label_smoothing)?.scores())
    }
}
