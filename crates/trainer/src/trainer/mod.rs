//! The training loop.
//!
//! All decisions depend only on the state, the configuration and the data; the exceptions are
//! `max_minutes` and the stop flag. So a run that was interrupted and resumed equals an
//! uninterrupted run, to the bit.
//!
//! Several processes may run this same loop: each fetches its share of an update's micro-batches,
//! and only process 0 validates, saves and reports. All processes decide alike, and if one fails,
//! none continues.

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
    /// True if the state on disk equals the state in memory.
    saved: bool,
    /// True if everything that is due after the last update has been done, so that the state may be
    /// saved.
    settled: bool,
    /// First failure of the observer; training ends with it after the current update.
    unobserved: Option<TrainError>,
    /// The learning rate of the last update, for the log.
    learning_rate: f64,
    /// Cross entropy per answer of the last update; 0 before the first update of this process.
    nll: f64,
    /// Time of this process in the updates since the last log event. `whole_time` adds the updates
    /// before that event.
    time: ProcessTime,
    whole_time: ProcessTime,
}

impl<M: Model> Trainer<M> {
    /// The model, with its current weights.
    #[must_use]
    pub const fn model(&self) -> &M {
        &self.model
    }

    /// Ends the training, and returns the model with its current weights.
    #[must_use]
    pub fn into_model(self) -> M {
        self.model
    }

    /// The state after the updates made so far.
    #[must_use]
    pub const fn state(&self) -> &State {
        &self.state
    }

    /// True if [`Trainer::rescue`] can save a state that is not on disk yet. It can after an error
    /// of the disk. It cannot after an error of the computation, because the current update is then
    /// half done.
    #[must_use]
    pub const fn needs_rescue(&self) -> bool {
        self.settled && !self.saved
    }

    /// Trains until a limit is reached, patience runs out or `stop` is set.
    ///
    /// When `stop` is set, the current update is finished or dropped, and a checkpoint is saved,
    /// from which training continues as if uninterrupted. At any other end, the model is validated
    /// and saved, unless this was done after the last update; if configured, the last checkpoints
    /// are then averaged.
    ///
    /// # Errors
    /// When the data, the validation, the observer or the disk failed, or training diverged.
    /// Earlier checkpoints are not changed. If data, validation or observer failed, the state is
    /// saved first. If the state could not be saved, it is still in memory, and [`Trainer::rescue`]
    /// can save it elsewhere.
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
            // The validation of this step failed in the earlier process, which saved the state
            // without it.
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
                // Another process, or the stop flag, gave a reason to stop meanwhile.
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

    /// Does what is due after an update: a log event, a validation, a checkpoint.
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

    /// Moves to the next epoch if the current one has become shorter than the position in it,
    /// because the text or the token budget was changed.
    fn leave_a_shortened_epoch(&mut self, source: &mut dyn Source) -> Result<(), TrainError> {
        let position = self.state.position;
        let batches = source.batches(position.epoch).map_err(cannot_fetch(position));
        let batches = agree(self.updater.exchange(), batches)?;
        // Before the first batch of an epoch was taken, the length of the epoch does not matter.
        if position.index > 0 && position.index >= batches {
            self.state.position = Position { epoch: position.epoch + 1, index: 0 };
        }
        Ok(())
    }

    /// True if the configuration has a validation after the update `state.step`.
    const fn validation_is_due(&self) -> bool {
        is_due(self.state.step, self.config.validate_every)
    }

    /// Makes the validation and the checkpoint that are due after the last update.
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

    /// Returns a reason to make no more updates, if any process has one. An interruption has the
    /// lowest priority: otherwise a run that is complete would wait to be resumed.
    fn reason_to_stop(&mut self, stop: &AtomicBool) -> Result<Option<StopReason>, TrainError> {
        let interrupted = || stop.load(Ordering::Relaxed).then_some(StopReason::Interrupted);
        let reason = self.state.reason_to_stop(&self.config).or_else(interrupted);
        Ok(everyone(self.updater.exchange(), reason)?.into_iter().flatten().next())
    }

    /// Makes or skips one update, and returns whether it was made. If `stop` ends it midway, the
    /// update counts as not begun.
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

    /// Fetches this process's micro-batches of the next update, the number of micro-batches of all
    /// processes, and the position after them. `None` if `stop` is set in any process before its
    /// micro-batches are complete.
    ///
    /// The micro-batches may come from two epochs, so that all updates have the same number of
    /// them; only the last update of the last epoch may have fewer.
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
                // This happens only if there are no data, or if data disappear between two updates.
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

    /// Does the remaining work at the end of training, for this `reason`.
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
        // A checkpoint of the last update counts as scheduled, even if it was first saved because
        // of an interruption.
        if !self.saved || (complete && self.state.interim) {
            self.state.training_seconds = clock.seconds();
            self.state.interim &= !complete;
            self.save(improved, observer)?;
        } else if complete {
            // A process that was killed right after it saved its last checkpoint has not pruned.
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

/// Micro-batches of one update.
struct Gathered {
    /// The micro-batches of this process.
    batches: Vec<Batch>,
    /// Number of micro-batches in all processes.
    count: usize,
    /// The position in the data after these micro-batches.
    next: Position,
}

/// Returns a function that makes the error for a micro-batch that cannot be fetched.
fn cannot_fetch(Position { epoch, index }: Position) -> impl FnOnce(BoxError) -> TrainError {
    move |source| TrainError::Source { epoch, index, source }
}

/// Time in the training loop: `before` is the sum over the earlier processes of the run, in
/// seconds.
struct Clock {
    began: Instant,
    before: f64,
}

impl Clock {
    fn seconds(&self) -> f64 {
        self.before + self.began.elapsed().as_secs_f64()
    }
}

/// True if an action that is due every `every` updates is due after the update `step`. If `every`
/// is 0, it is never due.
const fn is_due(step: u64, every: u64) -> bool {
    every > 0 && step.is_multiple_of(every)
}
