//! Updates that are made only to measure their time.

use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, bail};
use taper_model::{Batch, Model};
use taper_trainer::{
    DueUpdate, Exchange, Outcome, SingleProcess, TrainingConfig, UpdateMetrics, Updater,
};

/// Series of updates, without data loading, checkpoints or validations.
pub struct TimedUpdates<'a, M> {
    model: &'a M,
    training: &'a TrainingConfig,
    updater: Updater,
    learning_rate: f64,
    made: u64,
}

impl<'a, M: Model> TimedUpdates<'a, M> {
    /// Prepares updates of `model`, all with the same learning rate. With the rate 0, the weights
    /// do not change.
    ///
    /// # Errors
    /// If there is too little memory for the optimizer's moments.
    pub fn new(model: &'a M, training: &'a TrainingConfig, learning_rate: f64) -> Result<Self> {
        Self::among(Box::new(SingleProcess::default()), model, training, learning_rate)
    }

    /// Prepares updates in the same way as [`TimedUpdates::new`], as one of several processes that
    /// make each update together.
    ///
    /// # Errors
    /// See [`TimedUpdates::new`].
    pub fn among(
        exchange: Box<dyn Exchange>,
        model: &'a M,
        training: &'a TrainingConfig,
        learning_rate: f64,
    ) -> Result<Self> {
        let updater = Updater::among(exchange, model.parameters(), training)
            .context("cannot make the optimizer")?;
        Ok(Self { model, training, updater, learning_rate, made: 0 })
    }

    /// Switches from fused operations to plain Candle operations and autodiff.
    #[must_use]
    pub fn with_composed_operations(mut self) -> Self {
        self.updater = self.updater.with_composed_operations();
        self
    }

    /// Makes the next update from the micro-batches `batches`, and waits for the device.
    ///
    /// # Errors
    /// If the update cannot be computed, or the loss or a gradient is not finite.
    pub fn make(&mut self, batches: &[Batch]) -> Result<UpdateMetrics> {
        self.made += 1;
        let outcome = self
            .updater
            .update(
                self.model,
                self.training,
                DueUpdate {
                    step: self.made,
                    learning_rate: self.learning_rate,
                    loss_limit: f64::INFINITY,
                },
                batches,
                &AtomicBool::new(false),
            )
            .map_err(anyhow::Error::from_boxed)
            .with_context(|| format!("step {}", self.made))?;
        match outcome {
            Outcome::Made(measured) => Ok(measured),
            Outcome::Skipped(why) => bail!("step {}: {why}", self.made),
            Outcome::Stopped => bail!("step {}: stopped", self.made),
        }
    }
}
