//! The training loop.
//!
//! All decisions depend on the state, the configuration and the data alone, apart from
//! `max_minutes` and the stop flag. So a run that was interrupted and resumed goes on as if it had
//! not been, to the bit.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use taper_model::{Batch, Model};

use crate::checkpoints::{self, AVERAGED, Checkpoints, Comparable, LAST};
use crate::updates::{Fault, Outcome, Updater, not_finite};
use crate::{
    Event, Identity, Observer, Parent, Position, Source, State, StopReason, Timing, TrainError,
    TrainingConfig, Validate, average,
};

/// A model in training.
pub struct Trainer<M> {
    model: M,
    config: TrainingConfig,
    checkpoints: Checkpoints,
    averaged: std::path::PathBuf,
    updater: Updater,
    state: State,
    /// Whether the state on disk is the one in memory.
    saved: bool,
    /// Whether everything that is due after the last update has been done, so that the state may
    /// be saved.
    settled: bool,
    /// The first failure of the observer; training ends once the update in hand is dealt with.
    unobserved: Option<TrainError>,
    /// The learning rate of the last update, for the log.
    learning_rate: f64,
}

impl<M: Model> Trainer<M> {
    /// Begins a run with the weights that `model` has; it saves under `checkpoints`.
    ///
    /// # Errors
    /// The configuration cannot be trained with, or buffers cannot be allocated.
    pub fn new(
        model: M,
        config: TrainingConfig,
        identity: Identity,
        checkpoints: &Path,
    ) -> Result<Self, TrainError> {
        config.check()?;
        let updater = Updater::new(model.parameters(), &config).map_err(|error| {
            TrainError::Compute { action: "set up the optimizer", step: 0, source: error.into() }
        })?;
        let state = State::new(config.seed, identity);
        Ok(Self::assemble(model, config, checkpoints, updater, state, false))
    }

    /// Continues the run under `checkpoints` from its checkpoint called `which` (`last`, `best` or
    /// a directory's name).
    ///
    /// # Errors
    /// The configuration cannot be trained with, or is of another seed; the checkpoint cannot be
    /// loaded, or does not fit the model or the tokenizer.
    pub fn resume(
        model: M,
        config: TrainingConfig,
        identity: Identity,
        checkpoints: &Path,
        which: &str,
    ) -> Result<Self, TrainError> {
        let path = Checkpoints::new(checkpoints).resolve(which)?;
        Self::resume_from(model, config, identity, checkpoints, &path)
    }

    /// As [`Trainer::resume`], from the checkpoint in the directory `path`, wherever that is; what
    /// is saved from here on is saved under `checkpoints`, and what `last` means there is this
    /// checkpoint from now on. Where `identity` is another than the checkpoint's, the checkpoint
    /// has it from now on: what has been accepted need not be accepted again. Where scores of
    /// validations are scores of something else by it, or of another metric, the best so far and
    /// the patience are forgotten.
    ///
    /// # Errors
    /// As [`Trainer::resume`], and if `last` cannot be changed.
    pub fn resume_from(
        model: M,
        config: TrainingConfig,
        identity: Identity,
        checkpoints: &Path,
        path: &Path,
    ) -> Result<Self, TrainError> {
        config.check()?;
        let path = path.to_owned();
        let mut state = checkpoints::read_state(&path)?;
        checkpoints::check_tokenizer(&path, &state, &identity.tokenizer_hash)?;
        if state.seed != config.seed {
            return Err(TrainError::Seed { path, saved: state.seed, configured: config.seed });
        }
        let updater = Updater::import(&path, &state, model.parameters(), &config)?;
        let on_disk = state.clone();
        let before = std::mem::replace(&mut state.identity, identity).validation;
        if state.early_stopping.is_of_another(config.early_stopping.metric)
            || (!before.is_empty() && before != state.identity.validation)
        {
            state.forget_scores();
        }
        let saved = Checkpoints::new(checkpoints).wind_back_to(&path, &state)?;
        if saved && state != on_disk {
            checkpoints::replace_state(&path, &state)?;
        }
        Ok(Self::assemble(model, config, checkpoints, updater, state, saved))
    }

    /// Forgets the best validation so far and the patience, where the caller knows that scores mean
    /// something else from here on. What has been saved knows it too.
    ///
    /// # Errors
    /// The pointer to the best checkpoint, or the last one, cannot be changed.
    pub fn forget_scores(&mut self) -> Result<(), TrainError> {
        self.state.forget_scores();
        let path = self.checkpoints.directory(self.state.step);
        if self.saved && self.checkpoints.wind_back_to(&path, &self.state)? {
            checkpoints::replace_state(&path, &self.state)?;
        }
        Ok(())
    }

    fn assemble(
        model: M,
        config: TrainingConfig,
        checkpoints: &Path,
        updater: Updater,
        state: State,
        saved: bool,
    ) -> Self {
        let averaged = checkpoints.join(AVERAGED);
        let checkpoints = Checkpoints::new(checkpoints);
        Self {
            model,
            config,
            checkpoints,
            averaged,
            updater,
            state,
            saved,
            settled: true,
            unobserved: None,
            learning_rate: 0.0,
        }
    }

    /// Saves the state before the first update, whose weights were taken from `parent`: a run that
    /// is killed before it has a checkpoint of its own goes on from them all the same.
    ///
    /// # Errors
    /// The disk refuses.
    pub fn save_beginning(&mut self, parent: Parent) -> Result<(), TrainError> {
        self.state.parent = Some(parent);
        self.write(&self.checkpoints.clone(), false).map(drop)
    }

    /// The model, with the weights that are trained.
    #[must_use]
    pub const fn model(&self) -> &M {
        &self.model
    }

    /// The model, with the weights that were trained.
    #[must_use]
    pub fn into_model(self) -> M {
        self.model
    }

    /// The state after the updates made so far.
    #[must_use]
    pub const fn state(&self) -> &State {
        &self.state
    }

    /// Whether the state can be saved by [`Trainer::rescue`] and is on disk nowhere yet. After an
    /// error of the disk this holds; after one of the computation it does not, since the update
    /// in hand is then half done.
    #[must_use]
    pub const fn needs_rescue(&self) -> bool {
        self.settled && !self.saved
    }

    /// Saves the state as a checkpoint under `checkpoints`, where the run's own folder takes no
    /// more; returns its directory.
    ///
    /// # Errors
    /// That directory cannot be written either.
    pub fn rescue(&mut self, checkpoints: &Path) -> Result<std::path::PathBuf, TrainError> {
        let best = self.state.early_stopping.best.is_some_and(|best| best.step == self.state.step);
        self.write(&Checkpoints::new(checkpoints), best)
    }

    /// Trains until a limit is reached, patience runs out or `stop` is set.
    ///
    /// When `stop` is set, the update in hand is finished and a checkpoint saved, from which
    /// training can go on as if nothing had been. At any other end the model is validated once
    /// more unless it just was, saved, and averaged with earlier ones where that is configured.
    ///
    /// # Errors
    /// The data, the validation, the observer or the disk failed, or training diverged. Checkpoints
    /// saved before stay as they are. Where data, validation or observer failed, the state is
    /// saved first; where it could not be saved, it is still in memory and [`Trainer::rescue`]
    /// takes it elsewhere.
    pub fn train(
        &mut self,
        source: &mut dyn Source,
        validate: &mut dyn Validate<M>,
        observer: &mut dyn Observer,
        stop: &AtomicBool,
    ) -> Result<StopReason, TrainError> {
        let clock = Clock { began: Instant::now(), before: self.state.training_seconds };
        self.leave_a_shortened_epoch(source)?;
        if self.state.step > 0
            && self.validation_is_due()
            && self.state.validated_at != Some(self.state.step)
        {
            // It failed, and the state was saved without it.
            self.validate_and_save(validate, observer, &clock)?;
            self.check_observer(observer)?;
        }
        let reason = loop {
            if let Some(reason) = self.reason_to_stop(stop) {
                break reason;
            }
            let began = Instant::now();
            let (batches, next) = match self.gather(source) {
                Ok(gathered) => gathered,
                Err(error) => {
                    self.save_interim(observer)?;
                    return Err(error);
                }
            };
            self.settled = false;
            let made = self.update(began, &batches, next, observer)?;
            self.state.training_seconds = clock.seconds();
            if made {
                self.follow_up(validate, observer, &clock)?;
            }
            self.settled = true;
            self.check_observer(observer)?;
        };
        self.finish(reason, validate, observer, &clock)?;
        self.check_observer(observer)?;
        Ok(reason)
    }

    /// What is due after an update: a log event, a validation, a checkpoint.
    fn follow_up(
        &mut self,
        validate: &mut dyn Validate<M>,
        observer: &mut dyn Observer,
        clock: &Clock,
    ) -> Result<(), TrainError> {
        if self.state.step.is_multiple_of(self.config.log_every) {
            self.log(observer);
        }
        self.validate_and_save(validate, observer, clock)
    }

    /// Goes on with the next epoch where other text or another token budget has made this one
    /// shorter than the position in it.
    fn leave_a_shortened_epoch(&mut self, source: &mut dyn Source) -> Result<(), TrainError> {
        let Position { epoch, index } = self.state.position;
        // An epoch of which nothing was taken is as long as it is.
        if index > 0
            && index
                >= source.batches(epoch).map_err(|error| TrainError::Source {
                    epoch,
                    index,
                    source: error,
                })?
        {
            self.state.position = Position { epoch: epoch + 1, index: 0 };
        }
        Ok(())
    }

    /// Whether the schedule has a validation after the last update.
    const fn validation_is_due(&self) -> bool {
        is_due(self.state.step, self.config.validate_every)
    }

    /// The validation and the checkpoint that are due after the last update.
    fn validate_and_save(
        &mut self,
        validate: &mut dyn Validate<M>,
        observer: &mut dyn Observer,
        clock: &Clock,
    ) -> Result<(), TrainError> {
        let improved = self.validation_is_due() && self.validate(validate, observer, clock)?;
        self.state.training_seconds = clock.seconds();
        self.settled = true;
        let save_now = match self.config.checkpoint_every {
            0 => self.validation_is_due(),
            every => is_due(self.state.step, every),
        };
        if improved || save_now {
            self.state.interim = false;
            self.save(improved, observer)?;
        }
        Ok(())
    }

    /// Why not to make another update, if there is a reason. An interruption comes last: a run that
    /// is complete is not waiting to be resumed.
    fn reason_to_stop(&self, stop: &AtomicBool) -> Option<StopReason> {
        let interrupted = || stop.load(Ordering::Relaxed).then_some(StopReason::Interrupted);
        self.state.reason_to_stop(&self.config).or_else(interrupted)
    }

    /// Makes one update or skips it; whether it was made.
    fn update(
        &mut self,
        began: Instant,
        batches: &[Batch],
        next: Position,
        observer: &mut dyn Observer,
    ) -> Result<bool, TrainError> {
        let step = self.state.step + 1;
        let rate = self.config.schedule.at(step, self.model.width(), self.config.max_updates);
        let limit = self.state.loss_limit(self.config.spike_factor);
        let failed = |source| TrainError::Compute { action: "train", step, source };
        let outcome = self
            .updater
            .update(&self.model, &self.config, step, rate, limit, batches)
            .map_err(failed)?;
        let begin = std::mem::replace(&mut self.state.position, next);
        self.saved = false;
        match outcome {
            Outcome::Made(measured) => {
                self.learning_rate = rate;
                self.state.step = step;
                self.state.interim = true;
                self.state.skipped_in_a_row = 0;
                self.state.score = None;
                self.state.tokens += measured.tokens;
                self.state.follow_loss(self.config.spike_factor, measured.loss());
                self.state.window.add(&measured, began.elapsed().as_secs_f64());
                Ok(true)
            }
            Outcome::Skipped(fault) => {
                let Position { epoch, index } = begin;
                let place = match fault {
                    Fault::Spike { .. } if batches.len() == 1 => {
                        format!("in micro-batch {index} of epoch {epoch}")
                    }
                    Fault::Spike { .. } => format!(
                        "in the {} micro-batches from {index} of epoch {epoch} on",
                        batches.len()
                    ),
                    Fault::Loss(_) | Fault::Gradient(_) => {
                        not_finite::first_not_finite(&self.model, &self.config, step, batches)
                            .map_err(failed)?
                    }
                };
                self.skip(epoch, fault.to_string(), place, observer)?;
                Ok(false)
            }
        }
    }

    /// Counts a skipped update, and gives up after too many in a row.
    fn skip(
        &mut self,
        epoch: u64,
        reason: String,
        place: String,
        observer: &mut dyn Observer,
    ) -> Result<(), TrainError> {
        let state = &mut self.state;
        state.skipped += 1;
        state.skipped_in_a_row += 1;
        let (step, in_a_row, total) = (state.step, state.skipped_in_a_row, state.skipped);
        self.tell(
            observer,
            &Event::Skipped {
                step,
                epoch,
                reason: reason.clone(),
                place: place.clone(),
                in_a_row,
                total,
            },
        );
        if in_a_row >= self.config.max_skipped_in_a_row {
            let last_good = match self.checkpoints.resolve(LAST) {
                Ok(path) => format!("the last good checkpoint is {}", path.display()),
                Err(_) => "there is no checkpoint from before".to_owned(),
            };
            return Err(TrainError::Diverged { step, in_a_row, reason, place, last_good });
        }
        Ok(())
    }

    /// The micro-batches of the next update, and the position after them.
    ///
    /// They may span two epochs, so that every update is of the same size; only the last epoch cuts
    /// short.
    fn gather(&self, source: &mut dyn Source) -> Result<(Vec<Batch>, Position), TrainError> {
        let mut at = self.state.position;
        let begin = at;
        let mut batches = Vec::with_capacity(self.config.accumulation);
        while batches.len() < self.config.accumulation {
            if self.config.max_epochs > 0 && at.epoch >= self.config.max_epochs {
                break;
            }
            let failed =
                |error| TrainError::Source { epoch: at.epoch, index: at.index, source: error };
            let count = source.batches(at.epoch).map_err(failed)?;
            if at.index >= count {
                // Only possible where there is no data, or less from one update to the next.
                return Err(TrainError::NoData { epoch: at.epoch, index: at.index });
            }
            batches.push(source.batch(at).map_err(failed)?);
            at.index += 1;
            if at.index == count {
                at = Position { epoch: at.epoch + 1, index: 0 };
            }
        }
        if batches.iter().all(|batch| batch.tokens() == 0) {
            return Err(TrainError::NoData { epoch: begin.epoch, index: begin.index });
        }
        Ok((batches, at))
    }

    /// Reports the averages of the window, and begins a new one.
    fn log(&mut self, observer: &mut dyn Observer) {
        let timing = self.timing();
        let window = std::mem::take(&mut self.state.window);
        let tokens = window.tokens as f64;
        let event = Event::Log {
            step: self.state.step,
            epoch: self.state.position.epoch,
            loss: window.smoothed_sum / tokens,
            nll: window.nll_sum / tokens,
            divergence: (self.config.r_drop > 0.0).then(|| window.divergence_sum / tokens),
            accuracy: window.correct as f64 / tokens,
            learning_rate: self.learning_rate,
            gradient_norm: window.gradient_norm_sum / window.updates as f64,
            tokens: self.state.tokens,
            window_tokens: window.tokens,
            timing,
        };
        self.tell(observer, &event);
    }

    /// Measures the model; whether it is the best so far. Saves the state if that fails: the
    /// updates are sound, whatever kept them from being scored.
    fn validate(
        &mut self,
        validate: &mut dyn Validate<M>,
        observer: &mut dyn Observer,
        clock: &Clock,
    ) -> Result<bool, TrainError> {
        self.measure(validate, observer).or_else(|error| {
            self.state.training_seconds = clock.seconds();
            self.settled = true;
            self.save_interim(observer)?;
            Err(error)
        })
    }

    fn measure(
        &mut self,
        validate: &mut dyn Validate<M>,
        observer: &mut dyn Observer,
    ) -> Result<bool, TrainError> {
        let step = self.state.step;
        let scores = self
            .updater
            .with_model(&self.model, |model| validate.validate(model, step))
            .map_err(|source| TrainError::Validation { step, source })?;
        if scores.is_empty() {
            self.state.validated_at = Some(step);
            self.saved = false;
            return Ok(false);
        }
        let early = &self.config.early_stopping;
        let score = scores.get(early.metric.name()).ok_or_else(|| TrainError::MissingMetric {
            metric: early.metric.name(),
            available: scores.iter().map(|(name, _)| name).collect::<Vec<_>>().join(", "),
        })?;
        self.state.validated_at = Some(step);
        self.saved = false;
        self.state.score = Some(score);
        let improved = self.state.early_stopping.observe(early, step, score);
        let (epoch, timing) = (self.state.position.epoch, self.timing());
        self.tell(observer, &Event::Validation { step, epoch, scores, improved, timing });
        Ok(improved)
    }

    /// Saves a checkpoint, and deletes those that need no longer be kept.
    fn save(&mut self, best: bool, observer: &mut dyn Observer) -> Result<(), TrainError> {
        let step = self.state.step;
        observer.flush().map_err(|source| TrainError::Observer { step, source })?;
        let path = self.write(&self.checkpoints.clone(), best)?;
        let deleted = self.prune()?;
        self.tell(
            observer,
            &Event::Checkpoint { step, path, best, deleted, timing: self.timing() },
        );
        Ok(())
    }

    /// Deletes the checkpoints that need no longer be kept; returns their names.
    fn prune(&self) -> Result<Vec<String>, TrainError> {
        let config = &self.config;
        Ok(self.checkpoints.prune(
            self.state.step,
            config.keep_last,
            config.keep_best,
            &Comparable {
                metric: config.early_stopping.metric,
                validation: &self.state.identity.validation,
            },
        )?)
    }

    /// Writes the state as one of `checkpoints`.
    fn write(
        &mut self,
        checkpoints: &Checkpoints,
        best: bool,
    ) -> Result<std::path::PathBuf, TrainError> {
        let step = self.state.step;
        let (model, optimizer) = self.updater.export(self.model.parameters()).map_err(|error| {
            TrainError::Compute { action: "copy the weights", step, source: error.into() }
        })?;
        let path = checkpoints.save(&self.state, &model, &optimizer, best)?;
        self.saved = true;
        Ok(path)
    }

    /// Saves what the schedule would not, so that training can go on from here.
    fn save_interim(&mut self, observer: &mut dyn Observer) -> Result<(), TrainError> {
        if self.saved {
            return Ok(());
        }
        self.save(false, observer)
    }

    /// Ends training if the observer has failed, with the state saved.
    fn check_observer(&mut self, observer: &mut dyn Observer) -> Result<(), TrainError> {
        let Some(error) = self.unobserved.take() else { return Ok(()) };
        self.save_interim(observer)?;
        Err(error)
    }

    /// Tells the observer; if it fails, training goes on to where it can be ended without loss.
    fn tell(&mut self, observer: &mut dyn Observer, event: &Event) {
        if let Err(source) = observer.observe(event) {
            self.unobserved.get_or_insert(TrainError::Observer { step: event.step(), source });
        }
    }

    /// What remains to be done when training ends.
    fn finish(
        &mut self,
        reason: StopReason,
        validate: &mut dyn Validate<M>,
        observer: &mut dyn Observer,
        clock: &Clock,
    ) -> Result<(), TrainError> {
        let complete = reason != StopReason::Interrupted;
        let improved = complete
            && self.state.validated_at != Some(self.state.step)
            && self.validate(validate, observer, clock)?;
        // A checkpoint of the last update counts as the schedule's, whatever it was first saved
        // for.
        if !self.saved || (complete && self.state.interim) {
            self.state.training_seconds = clock.seconds();
            self.state.interim &= !complete;
            self.save(improved, observer)?;
        } else if complete {
            // A process that was killed right after its last checkpoint has not come to this.
            self.prune()?;
        }
        if complete && self.config.average_last > 0 {
            self.average_last(observer)?;
        }
        let (step, epoch, timing, skipped) =
            (self.state.step, self.state.position.epoch, self.timing(), self.state.skipped);
        self.tell(observer, &Event::Stopped { step, epoch, reason, skipped, timing });
        Ok(())
    }

    /// Averages the newest checkpoints.
    fn average_last(&mut self, observer: &mut dyn Observer) -> Result<(), TrainError> {
        let mut all = self.checkpoints.list()?;
        all.retain(|saved| saved.step <= self.state.step && !saved.interim);
        let newest = &all[all.len().saturating_sub(self.config.average_last)..];
        let paths: Vec<_> = newest.iter().map(|saved| saved.path.clone()).collect();
        average(&paths)?.save(&self.averaged)?;
        let name = |path: &std::path::PathBuf| {
            path.file_name().map(|name| name.to_string_lossy().into_owned())
        };
        let of = paths.iter().filter_map(name).collect();
        let event = Event::Averaged { step: self.state.step, path: self.averaged.clone(), of };
        self.tell(observer, &event);
        Ok(())
    }

    fn timing(&self) -> Timing {
        let window = &self.state.window;
        let tokens_per_second =
            (window.seconds > 0.0).then(|| window.tokens as f64 / window.seconds);
        Timing { elapsed_seconds: self.state.training_seconds, tokens_per_second }
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
