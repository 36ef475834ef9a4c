//! The training loop.
//!
//! All decisions depend on the state, the configuration and the data alone, apart from `max_minutes` and
//! the stop flag. So a run that was interrupted and resumed goes on as if it had not been, to the bit.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use taper_model::Transformer;

use crate::checkpoint::{self, AVERAGED, Checkpoints};
use crate::update::{Measured, Optimizer, Outcome};
use crate::{
    BoxError, Event, Identity, MicroBatch, Observer, Position, Source, State, StopReason, Timing, TrainError, TrainingConfig, Validate,
    Window, average,
};

/// A model in training.
pub struct Trainer {
    model: Transformer,
    config: TrainingConfig,
    checkpoints: Checkpoints,
    averaged: std::path::PathBuf,
    optimizer: Optimizer,
    state: State,
    /// Whether the state on disk is the one in memory.
    saved: bool,
    /// The learning rate of the last update, for the log.
    learning_rate: f64,
}

impl Trainer {
    /// Begins a run with the weights that `model` has; it saves under `checkpoints`.
    ///
    /// # Errors
    /// The configuration cannot be trained with, or buffers cannot be allocated.
    pub fn new(model: Transformer, config: TrainingConfig, identity: Identity, checkpoints: &Path) -> Result<Self, TrainError> {
        config.check()?;
        let optimizer = Optimizer::new(model.parameters(), config.ema_decay).map_err(|error| TrainError::Compute {
            action: "set up the optimizer",
            step: 0,
            source: error.into(),
        })?;
        let state = State::new(config.seed, identity);
        Ok(Self::assemble(model, config, checkpoints, optimizer, state, false))
    }

    /// Continues the run under `checkpoints` from its checkpoint called `which` (`last`, `best` or a
    /// directory's name).
    ///
    /// # Errors
    /// The configuration cannot be trained with, or is of another seed; the checkpoint cannot be loaded, or
    /// does not fit the model or the tokenizer.
    pub fn resume(
        model: Transformer,
        config: TrainingConfig,
        identity: Identity,
        checkpoints: &Path,
        which: &str,
    ) -> Result<Self, TrainError> {
        config.check()?;
        let path = Checkpoints::new(checkpoints).resolve(which)?;
        let mut state = checkpoint::read_state(&path)?;
        checkpoint::check_tokenizer(&path, &state, &identity.tokenizer_hash)?;
        if state.seed != config.seed {
            return Err(TrainError::Seed { path, saved: state.seed, configured: config.seed });
        }
        let optimizer = Optimizer::import(&path, &state, model.parameters(), config.ema_decay > 0.0)?;
        state.identity = identity;
        Ok(Self::assemble(model, config, checkpoints, optimizer, state, true))
    }

    fn assemble(model: Transformer, config: TrainingConfig, checkpoints: &Path, optimizer: Optimizer, state: State, saved: bool) -> Self {
        let averaged = checkpoints.join(AVERAGED);
        let checkpoints = Checkpoints::new(checkpoints);
        Self { model, config, checkpoints, averaged, optimizer, state, saved, learning_rate: 0.0 }
    }

    /// The model, with the weights that are trained.
    #[must_use]
    pub const fn model(&self) -> &Transformer {
        &self.model
    }

    /// The model, with the weights that were trained.
    #[must_use]
    pub fn into_model(self) -> Transformer {
        self.model
    }

    /// The state after the updates made so far.
    #[must_use]
    pub const fn state(&self) -> &State {
        &self.state
    }

    /// The configuration.
    #[must_use]
    pub const fn config(&self) -> &TrainingConfig {
        &self.config
    }

    /// Trains until a limit is reached, patience runs out or `stop` is set.
    ///
    /// When `stop` is set, the update in hand is finished and a checkpoint saved, from which training can
    /// go on as if nothing had been. At any other end the model is validated once more unless it just was,
    /// saved, and averaged with earlier ones where that is configured.
    ///
    /// # Errors
    /// The data, the validation, the observer or the disk failed, or training diverged. Checkpoints saved
    /// before stay as they are.
    pub fn train(
        &mut self,
        source: &mut dyn Source,
        validate: &mut dyn Validate,
        observer: &mut dyn Observer,
        stop: &AtomicBool,
    ) -> Result<StopReason, TrainError> {
        let clock = Clock { began: Instant::now(), before: self.state.training_seconds };
        let reason = loop {
            if let Some(reason) = self.reason_to_stop(stop) {
                break reason;
            }
            let made = self.update(source, observer)?;
            self.state.training_seconds = clock.seconds();
            if !made {
                continue;
            }
            if self.state.step.is_multiple_of(self.config.log_every) {
                self.log(observer)?;
            }
            let validate_now = is_due(self.state.step, self.config.validate_every);
            let improved = validate_now && self.validate(validate, observer)?;
            self.state.training_seconds = clock.seconds();
            let save_now = match self.config.checkpoint_every {
                0 => validate_now,
                every => is_due(self.state.step, every),
            };
            if improved || save_now {
                self.save(improved, observer)?;
            }
        };
        self.finish(reason, validate, observer, &clock)?;
        Ok(reason)
    }

    /// Why not to make another update, if there is a reason. An interruption comes last: a run that is
    /// complete is not waiting to be resumed.
    fn reason_to_stop(&self, stop: &AtomicBool) -> Option<StopReason> {
        let (config, state) = (&self.config, &self.state);
        if state.early_stopping.is_over(&config.early_stopping) {
            Some(StopReason::EarlyStopping)
        } else if config.max_updates > 0 && state.step >= config.max_updates {
            Some(StopReason::MaxUpdates)
        } else if config.max_epochs > 0 && state.position.epoch >= config.max_epochs {
            Some(StopReason::MaxEpochs)
        } else if config.max_minutes > 0.0 && state.training_seconds >= config.max_minutes * 60.0 {
            Some(StopReason::MaxMinutes)
        } else if stop.load(Ordering::Relaxed) {
            Some(StopReason::Interrupted)
        } else {
            None
        }
    }

    /// Makes one update or skips it; whether it was made.
    fn update(&mut self, source: &mut dyn Source, observer: &mut dyn Observer) -> Result<bool, TrainError> {
        let began = Instant::now();
        let (batches, next) = self.gather(source)?;
        let step = self.state.step + 1;
        let rate = self.config.schedule.at(step, self.model.config().d_model, self.config.max_updates);
        let outcome = self.optimizer.update(&self.model, &self.config, step, rate, &batches).map_err(|source| TrainError::Compute {
            action: "train",
            step,
            source,
        })?;
        self.state.position = next;
        self.saved = false;
        match outcome {
            Outcome::Made(measured) => {
                self.learning_rate = rate;
                self.state.step = step;
                self.state.skipped_in_a_row = 0;
                self.state.score = None;
                self.state.tokens += measured.tokens;
                self.state.window.add(&measured, began.elapsed().as_secs_f64());
                Ok(true)
            }
            Outcome::Skipped(reason) => {
                self.skip(reason, observer)?;
                Ok(false)
            }
        }
    }

    /// Counts a skipped update, and gives up after too many in a row.
    fn skip(&mut self, reason: String, observer: &mut dyn Observer) -> Result<(), TrainError> {
        let state = &mut self.state;
        state.skipped += 1;
        state.skipped_in_a_row += 1;
        let (step, epoch, in_a_row, total) = (state.step, state.position.epoch, state.skipped_in_a_row, state.skipped);
        tell(observer, &Event::Skipped { step, epoch, reason: reason.clone(), in_a_row, total })?;
        if in_a_row >= self.config.max_skipped_in_a_row {
            return Err(TrainError::Diverged { step, in_a_row, reason });
        }
        Ok(())
    }

    /// The micro-batches of the next update, and the position after them.
    ///
    /// They may span two epochs, so that every update is of the same size; only the last epoch cuts short.
    fn gather(&self, source: &mut dyn Source) -> Result<(Vec<MicroBatch>, Position), TrainError> {
        let mut at = self.state.position;
        let begin = at;
        let mut batches = Vec::with_capacity(self.config.accumulation);
        while batches.len() < self.config.accumulation {
            if self.config.max_epochs > 0 && at.epoch >= self.config.max_epochs {
                break;
            }
            let failed = |error| TrainError::Source { epoch: at.epoch, index: at.index, source: error };
            let count = source.batches(at.epoch).map_err(failed)?;
            if at.index >= count {
                // Only possible where the data shrank since the position was saved.
                return Err(TrainError::NoData { epoch: at.epoch, index: at.index });
            }
            batches.push(source.batch(at).map_err(failed)?);
            at.index += 1;
            if at.index == count {
                at = Position { epoch: at.epoch + 1, index: 0 };
            }
        }
        if batches.iter().all(|batch| batch.target_tokens() == 0) {
            return Err(TrainError::NoData { epoch: begin.epoch, index: begin.index });
        }
        Ok((batches, at))
    }

    /// Reports the averages of the window, and begins a new one.
    fn log(&mut self, observer: &mut dyn Observer) -> Result<(), TrainError> {
        let timing = self.timing();
        let window = std::mem::take(&mut self.state.window);
        let tokens = window.tokens as f64;
        let event = Event::Log {
            step: self.state.step,
            epoch: self.state.position.epoch,
            loss: window.smoothed_sum / tokens,
            nll: window.nll_sum / tokens,
            accuracy: window.correct as f64 / tokens,
            learning_rate: self.learning_rate,
            gradient_norm: window.gradient_norm_sum / window.updates as f64,
            tokens: self.state.tokens,
            window_tokens: window.tokens,
            timing,
        };
        tell(observer, &event)
    }

    /// Measures the model; whether it is the best so far.
    fn validate(&mut self, validate: &mut dyn Validate, observer: &mut dyn Observer) -> Result<bool, TrainError> {
        let step = self.state.step;
        let scores = self
            .optimizer
            .with_model(&self.model, |model| validate.validate(model, step))
            .map_err(|source| TrainError::Validation { step, source })?;
        self.state.validated_at = Some(step);
        self.saved = false;
        if scores.is_empty() {
            return Ok(false);
        }
        let early = &self.config.early_stopping;
        let score = scores.get(early.metric.name()).ok_or_else(|| TrainError::MissingMetric {
            metric: early.metric.name(),
            available: scores.iter().map(|(name, _)| name).collect::<Vec<_>>().join(", "),
        })?;
        self.state.score = Some(score);
        let improved = self.state.early_stopping.observe(early, step, score);
        let (epoch, timing) = (self.state.position.epoch, self.timing());
        tell(observer, &Event::Validation { step, epoch, scores, improved, timing })?;
        Ok(improved)
    }

    /// Saves a checkpoint, and deletes those that need no longer be kept.
    fn save(&mut self, best: bool, observer: &mut dyn Observer) -> Result<(), TrainError> {
        let step = self.state.step;
        let (model, optimizer) = self.optimizer.export(self.model.parameters()).map_err(|error| TrainError::Compute {
            action: "copy the weights",
            step,
            source: error.into(),
        })?;
        let path = self.checkpoints.save(&self.state, &model, &optimizer, best)?;
        self.saved = true;
        let metric = self.config.early_stopping.metric;
        let deleted = self.checkpoints.prune(step, self.config.keep_last, self.config.keep_best, metric)?;
        tell(observer, &Event::Checkpoint { step, path, best, deleted, timing: self.timing() })
    }

    /// What remains to be done when training ends.
    fn finish(
        &mut self,
        reason: StopReason,
        validate: &mut dyn Validate,
        observer: &mut dyn Observer,
        clock: &Clock,
    ) -> Result<(), TrainError> {
        let complete = reason != StopReason::Interrupted;
        let improved = complete && self.state.validated_at != Some(self.state.step) && self.validate(validate, observer)?;
        if !self.saved {
            self.state.training_seconds = clock.seconds();
            self.save(improved, observer)?;
        }
        if complete && self.config.average_last > 0 {
            self.average_last(observer)?;
        }
        let (step, epoch, timing) = (self.state.step, self.state.position.epoch, self.timing());
        tell(observer, &Event::Stopped { step, epoch, reason, timing })
    }

    /// Averages the newest checkpoints.
    fn average_last(&self, observer: &mut dyn Observer) -> Result<(), TrainError> {
        let mut all = self.checkpoints.list()?;
        all.retain(|saved| saved.step <= self.state.step);
        let newest = &all[all.len().saturating_sub(self.config.average_last)..];
        let paths: Vec<_> = newest.iter().map(|saved| saved.path.clone()).collect();
        average(&paths)?.save(&self.averaged)?;
        let name = |path: &std::path::PathBuf| path.file_name().map(|name| name.to_string_lossy().into_owned());
        let of = paths.iter().filter_map(name).collect();
        tell(observer, &Event::Averaged { step: self.state.step, path: self.averaged.clone(), of })
    }

    fn timing(&self) -> Timing {
        let window = &self.state.window;
        let tokens_per_second = if window.seconds > 0.0 { window.tokens as f64 / window.seconds } else { 0.0 };
        Timing { elapsed_seconds: self.state.training_seconds, tokens_per_second }
    }
}

impl Window {
    /// Adds one update.
    fn add(&mut self, measured: &Measured, seconds: f64) {
        self.updates += 1;
        self.tokens += measured.tokens;
        self.correct += measured.correct;
        self.smoothed_sum += measured.smoothed_sum;
        self.nll_sum += measured.nll_sum;
        self.gradient_norm_sum += measured.gradient_norm;
        self.seconds += seconds;
    }
}

/// Time in the loop, summed over resumes.
struct Clock {
    began: Instant,
    before: f64,
}

impl Clock {
    fn seconds(&self) -> f64 {
        self.before + self.began.elapsed().as_secs_f64()
    }
}

/// Whether something done every so many updates is to be done after `step`; 0 is never.
const fn is_due(step: u64, every: u64) -> bool {
    every > 0 && step.is_multiple_of(every)
}

fn tell(observer: &mut dyn Observer, event: &Event) -> Result<(), TrainError> {
    let step = event.step();
    observer.observe(event).map_err(|source: BoxError| TrainError::Observer { step, source })
}
