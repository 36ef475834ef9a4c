//! The training loop.
//!
//! All decisions depend only on the state, the configuration and the data, apart from `max_minutes`
//! and the stop flag. So a run that was interrupted and resumed equals an uninterrupted one, to the
//! bit.
//!
//! Several processes run this same loop: each fetches its share of an update's micro-batches, and
//! only process 0 validates, saves and reports. No process continues if another has failed, and all
//! of them decide alike.

mod beginning;
mod divergence;
mod reporting;
mod saving;

pub use divergence::DivergenceMonitor;
pub use saving::UnsavedState;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use taper_model::{Batch, Model};

use crate::checkpoints::Checkpoints;
use crate::exchange::{agree, everyone, leaves_of};
use crate::updates::{DueUpdate, Outcome, SkipReason, Updater};
use crate::{
    BoxError, Event, Observer, Position, ProcessTime, Source, State, StopReason, Timing,
    TrainError, TrainingConfig, Validator,
};

/// A model in training.
pub struct Trainer<M> {
    model: M,
    config: TrainingConfig,
    checkpoints: Checkpoints,
    averaged: PathBuf,
    updater: Updater,
    state: State,
    /// Whether the state on disk equals the state in memory.
    saved: bool,
    /// Whether all work due after the last update has been done, so that the state may be saved.
    settled: bool,
    /// First failure of the observer; training ends after the current update.
    unobserved: Option<TrainError>,
    /// The learning rate of the last update, for the log.
    learning_rate: f64,
    /// Cross entropy per answer of the last update; 0 before the first update of this process.
    nll: f64,
    /// Times of this process: in the updates since the last log event, and in total.
    time: ProcessTime,
    whole_time: ProcessTime,
}

impl<M: Model> Trainer<M> {
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

    /// Whether [`Trainer::rescue`] can save a state that is not on disk yet. True after an error of
    /// the disk; false after an error of the computation, because the current update is then half
    /// done.
    #[must_use]
    pub const fn needs_rescue(&self) -> bool {
        self.settled && !self.saved
    }

    /// Trains until a limit is reached, patience runs out or `stop` is set.
    ///
    /// When `stop` is set, the current update is finished and a checkpoint saved, from which
    /// training continues as if uninterrupted. At any other end the model is validated once more
    /// unless it just was, and saved; if configured, the last checkpoints are then averaged.
    ///
    /// # Errors
    /// When the data, the validation, the observer or the disk failed, or training diverged.
    /// Earlier checkpoints are not changed. If data, validation or observer failed, the state is
    /// saved first. If it could not be saved, it is still in memory, and [`Trainer::rescue`] saves
    /// it elsewhere.
    pub fn train(
        &mut self,
        source: &mut dyn Source,
        validate: &mut dyn Validator<M>,
        observer: &mut dyn Observer,
        stop: &AtomicBool,
    ) -> Result<StopReason, TrainError> {
        let clock = Clock { began: Instant::now(), before: self.state.training_seconds };
        self.leave_a_shortened_epoch(source)?;
        if self.state.step > 0
            && self.validation_is_due()
            && self.state.validated_at != Some(self.state.step)
        {
            // When the validation failed; the state was saved without it.
            self.validate_and_save(validate, observer, &clock)?;
            self.check_observer(observer)?;
        }
        let reason = loop {
            if let Some(reason) = self.reason_to_stop(stop)? {
                break reason;
            }
            let began = (Instant::now(), self.updater.waited());
            let gathered = match self.gather(source, stop) {
                Ok(Some(gathered)) => gathered,
                // A reason to stop has appeared meanwhile.
                Ok(None) => continue,
                Err(error) => {
                    self.save_interim(observer)?;
                    return Err(error);
                }
            };
            self.settled = false;
            let was_updated = self.update(began, &gathered, observer, stop)?;
            self.state.training_seconds = clock.seconds();
            if was_updated {
                self.follow_up(validate, observer, &clock)?;
            }
            self.settled = true;
            self.check_observer(observer)?;
        };
        self.finish(reason, validate, observer, &clock)?;
        self.check_observer(observer)?;
        Ok(reason)
    }

    /// Does the work due after an update: a log event, a validation, a checkpoint.
    fn follow_up(
        &mut self,
        validate: &mut dyn Validator<M>,
        observer: &mut dyn Observer,
        clock: &Clock,
    ) -> Result<(), TrainError> {
        self.tell_updated(observer);
        if self.state.step.is_multiple_of(self.config.log_every) {
            self.log(observer)?;
        }
        self.validate_and_save(validate, observer, clock)
    }

    /// Continues with the next epoch if this one has become shorter than the position in it,
    /// because of other text or another token budget.
    fn leave_a_shortened_epoch(&mut self, source: &mut dyn Source) -> Result<(), TrainError> {
        let position = self.state.position;
        let batches = source.batches(position.epoch).map_err(cannot_fetch(position));
        let batches = agree(self.updater.exchange(), batches)?;
        // The length of an epoch does not matter before its first batch was taken.
        if position.index > 0 && position.index >= batches {
            self.state.position = Position { epoch: position.epoch + 1, index: 0 };
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
        validate: &mut dyn Validator<M>,
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
        if self.state.validated_at != Some(self.state.step) {
            return Ok(());
        }
        self.require_convergence(false).or_else(|error| {
            self.save_interim(observer)?;
            Err(error)
        })
    }

    /// Reason to make no more updates, if any process has one. An interruption comes last: a
    /// complete run does not wait to be resumed.
    fn reason_to_stop(&mut self, stop: &AtomicBool) -> Result<Option<StopReason>, TrainError> {
        let interrupted = || stop.load(Ordering::Relaxed).then_some(StopReason::Interrupted);
        let reason = self.state.reason_to_stop(&self.config).or_else(interrupted);
        Ok(everyone(self.updater.exchange(), reason)?.into_iter().flatten().next())
    }

    /// Makes or skips one update, and returns whether it was made. An update that `stop` ends
    /// midway counts as not begun.
    fn update(
        &mut self,
        (began, waited): (Instant, Duration),
        gathered: &Gathered,
        observer: &mut dyn Observer,
        stop: &AtomicBool,
    ) -> Result<bool, TrainError> {
        let Gathered { batches, count, next } = gathered;
        let step = self.state.step + 1;
        let rate = self.config.schedule.at(step, self.model.width(), self.config.max_updates);
        let loss_limit = self.state.loss_limit(self.config.spike_factor);
        let due = DueUpdate { step, learning_rate: rate, loss_limit };
        let failed = |source| TrainError::Compute { action: "train", step, source };
        let outcome =
            self.updater.update(&self.model, &self.config, due, batches, stop).map_err(failed)?;
        let begin = self.state.position;
        if outcome != Outcome::Stopped {
            self.state.position = *next;
            self.saved = false;
        }
        match outcome {
            Outcome::Stopped => Ok(false),
            Outcome::Made(measured) => {
                self.learning_rate = rate;
                self.nll = measured.nll();
                self.state.step = step;
                self.state.interim = true;
                self.state.skipped_in_a_row = 0;
                self.state.score = None;
                self.state.tokens += measured.tokens;
                self.state.follow_loss(self.config.spike_factor, measured.loss());
                let seconds = began.elapsed().as_secs_f64();
                self.state.window.add(&measured, seconds);
                let waiting_seconds = (self.updater.waited() - waited).as_secs_f64();
                self.time.busy_seconds += (seconds - waiting_seconds).max(0.0);
                self.time.waiting_seconds += waiting_seconds;
                Ok(true)
            }
            Outcome::Skipped(fault) => {
                let Position { epoch, index } = begin;
                let place = match fault {
                    SkipReason::Spike { .. } if *count == 1 => {
                        format!("in micro-batch {index} of epoch {epoch}")
                    }
                    SkipReason::Spike { .. } => {
                        format!("in the {count} micro-batches from {index} of epoch {epoch} on")
                    }
                    SkipReason::Loss(_) | SkipReason::Gradient(_) => self
                        .updater
                        .first_not_finite(&self.model, &self.config, step, batches)
                        .map_err(failed)?,
                };
                self.skip(epoch, fault.to_string(), place, observer)?;
                Ok(false)
            }
        }
    }

    /// Fetches this process's micro-batches of the next update, with the number of all of them and
    /// the position after them; `None` if `stop` is set in a process before they are complete.
    ///
    /// The micro-batches may span two epochs, so that all updates have the same size; only the last
    /// epoch may end with a smaller one.
    fn gather(
        &mut self,
        source: &mut dyn Source,
        stop: &AtomicBool,
    ) -> Result<Option<Gathered>, TrainError> {
        let begin = self.state.position;
        let gathered = self.fetch(source, stop);
        let gathered = agree(self.updater.exchange(), gathered)?;
        if everyone(self.updater.exchange(), gathered.is_none())?.contains(&true) {
            return Ok(None);
        }
        let Some(gathered) = gathered else { return Ok(None) };
        let tokens: usize = gathered.batches.iter().map(Batch::tokens).sum();
        if everyone(self.updater.exchange(), tokens)?.iter().all(|&tokens| tokens == 0) {
            return Err(TrainError::NoData { epoch: begin.epoch, index: begin.index });
        }
        Ok(Some(gathered))
    }

    fn fetch(
        &mut self,
        source: &mut dyn Source,
        stop: &AtomicBool,
    ) -> Result<Option<Gathered>, TrainError> {
        let mut next = self.state.position;
        let mut places = Vec::new();
        while places.len() < self.config.accumulation {
            if self.config.max_epochs > 0 && next.epoch >= self.config.max_epochs {
                break;
            }
            let count = source.batches(next.epoch).map_err(cannot_fetch(next))?;
            if next.index >= count {
                // This happens only without data, or if data disappear between two updates.
                return Err(TrainError::NoData { epoch: next.epoch, index: next.index });
            }
            places.push(next);
            next.index += 1;
            if next.index == count {
                next = Position { epoch: next.epoch + 1, index: 0 };
            }
        }
        let count = places.len();
        let exchange = self.updater.exchange();
        let own_leaves = leaves_of(count, exchange.rank(), exchange.size());
        let begin = self.state.position;
        source.arrange(&mut places, own_leaves.clone()).map_err(cannot_fetch(begin))?;
        let mut batches = Vec::new();
        for &at in &places[own_leaves] {
            if stop.load(Ordering::Relaxed) {
                return Ok(None);
            }
            batches.push(source.batch(at).map_err(cannot_fetch(at))?);
        }
        Ok(Some(Gathered { batches, count, next }))
    }

    /// Does the remaining work at the end of training.
    fn finish(
        &mut self,
        reason: StopReason,
        validate: &mut dyn Validator<M>,
        observer: &mut dyn Observer,
        clock: &Clock,
    ) -> Result<(), TrainError> {
        let complete = reason != StopReason::Interrupted;
        let improved = complete
            && self.state.validated_at != Some(self.state.step)
            && self.validate(validate, observer, clock)?;
        // A checkpoint of the last update counts as part of the schedule, even if it was first
        // saved for an interruption.
        if !self.saved || (complete && self.state.interim) {
            self.state.training_seconds = clock.seconds();
            self.state.interim &= !complete;
            self.save(improved, observer)?;
        } else if complete {
            // A process that was killed right after its last checkpoint has not done this.
            self.prune()?;
        }
        if complete && self.config.average_last > 0 {
            self.average_last(observer)?;
        }
        self.whole_time += &self.time;
        let timing = Timing { processes: self.times(self.whole_time.clone())?, ..self.timing() };
        let (step, epoch, skipped) =
            (self.state.step, self.state.position.epoch, self.state.skipped);
        self.tell(observer, &Event::Stopped { step, epoch, reason, skipped, timing });
        if complete { self.require_convergence(true) } else { Ok(()) }
    }
}

/// Micro-batches of an update.
struct Gathered {
    /// The micro-batches of this process.
    batches: Vec<Batch>,
    /// Number of micro-batches of all processes.
    count: usize,
    /// The position after them.
    next: Position,
}

/// Error for a micro-batch that cannot be fetched.
fn cannot_fetch(Position { epoch, index }: Position) -> impl FnOnce(BoxError) -> TrainError {
    move |source| TrainError::Source { epoch, index, source }
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

/// Whether an action of every `every` updates is due after `step`; 0: never.
const fn is_due(step: u64, every: u64) -> bool {
    every > 0 && step.is_multiple_of(every)
}
