//! Training of a small model on examples that are drawn at random.

use std::sync::atomic::AtomicBool;

use taper_model::{Batch, Model};
use taper_ops::rng::mix;
use taper_theory::TheoryError;
use taper_trainer::{
    BoxError, Event, Identity, NoValidation, Position, ScheduleConfig, ScheduleKind, Source,
    Trainer, TrainingConfig,
};

/// Length of a training, and its learning rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Lesson {
    /// Number of updates.
    pub(crate) updates: u64,
    /// Peak of the learning rate, from which it falls along half a cosine.
    pub(crate) learning_rate: f64,
}

/// Source of batches that are drawn at random. A batch depends only on the seed, the epoch and the
/// batch's index in the epoch.
struct Drawn<D> {
    seed: u64,
    draw: D,
}

impl<D: FnMut(u64) -> Batch> Source for Drawn<D> {
    fn batches(&mut self, _epoch: u64) -> Result<u64, BoxError> {
        Ok(1 << 20)
    }

    fn batch(&mut self, position: Position) -> Result<Batch, BoxError> {
        Ok((self.draw)(mix(self.seed, &[position.epoch, position.index])))
    }
}

impl Lesson {
    /// Trains `model` and returns it. `draw` makes each batch from a random key.
    ///
    /// # Errors
    /// If no folder can be made for checkpoints, or the training diverges.
    pub(crate) fn teach<M: Model>(
        self,
        model: M,
        seed: u64,
        draw: impl FnMut(u64) -> Batch,
    ) -> Result<M, TheoryError> {
        let boxed = |error: BoxError| TheoryError::Study(error);
        let folder = tempfile::tempdir().map_err(|error| boxed(error.into()))?;
        let config = TrainingConfig {
            seed,
            max_updates: self.updates,
            schedule: ScheduleConfig {
                kind: ScheduleKind::Cosine,
                learning_rate: self.learning_rate,
                warmup: (self.updates / 20).max(1),
                ..ScheduleConfig::default()
            },
            validate_every: 0,
            label_smoothing: 0.0,
            ..TrainingConfig::default()
        };
        let mut trainer = Trainer::new(model, config, Identity::default(), folder.path())
            .map_err(|error| boxed(error.into()))?;
        let mut source = Drawn { seed, draw };
        let mut observer = |_: &Event| Ok(());
        trainer
            .train(&mut source, &mut NoValidation, &mut observer, &AtomicBool::new(false))
            .map_err(|error| boxed(error.into()))?;
        Ok(trainer.into_model())
    }
}
