//! The training loop.
//!
//! All decisions depend only on the state, the configuration and the data, except those about
//! `max_minutes` and the stop flag. So the weights of a run that was interrupted and resumed are
//! identical bit for bit to those of an uninterrupted run.
//!
//! Several processes can run this loop together. Each process requests only its own share of an
//! update's micro-batches, and only process 0 validates, saves and reports. All processes make the
//! same decisions, and if one fails, all of them end.

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
    /// Whether everything that is due after the last update has been done, so that the state can be
    /// saved.
    settled: bool,
    /// First error of the [`Observer`], which receives the events of training. Training ends with
    /// this error after the current update.
    unobserved: Option<TrainError>,
    /// Learning rate of the last update, for log events.
    learning_rate: f64,
    /// Time of this process in the updates since the last log event. `whole_time` is the time of
    /// this process in all updates before that log event.
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

    /// Whether there is a complete state that is not on the disk yet, so that it should be saved
    /// elsewhere ([`Trainer::unsaved`]). This is so after an error of the disk, but not after an
    /// error of the computation, because the current update is then incomplete.
    #[must_use]
    pub const fn needs_rescue(&self) -> bool {
        self.settled && !self.saved
    }

    /// Trains until a limit is reached, early stopping ends the training, or `stop` is set.
    ///
    /// When `stop` is set, the current update is finished or dropped, and a checkpoint is saved.
    /// Training that is resumed from this checkpoint gives the same result as uninterrupted
    /// training. If training ends for another reason, the model is validated and saved, unless this
    /// was already done after the last update. Then, if this is configured, the last checkpoints
    /// are averaged.
    ///
    /// # Errors
    /// If the data, the validation, the observer or the disk failed, or training diverged. Earlier
    /// checkpoints are not changed. If data, validation or observer failed, the state is saved
    /// before the error is returned. If the state could not be saved, it is still in memory, and
    /// [`Trainer::unsaved`] returns it, so that it can be saved elsewhere.
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
            // The validation of this step failed in an earlier process, which saved the state
            // without this validation.
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
                // The stop flag was set in this process or in another one while micro-batches were
                // requested. `reason_to_stop` ends the loop.
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

    /// Logs, validates and saves after an update, as far as each of these is due.
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

    /// Moves to the next epoch if the position in the data is at or beyond the end of its epoch.
    /// This can happen after the text or the size of batches was changed, because the epoch can
    /// then have fewer micro-batches than before.
    fn leave_a_shortened_epoch(&mut self, source: &mut dyn Source) -> Result<(), TrainError> {
        let position = self.state.position;
        let batches = source.batches(position.epoch).map_err(cannot_fetch(position));
        let batches = agree(self.updater.exchange(), batches)?;
        // At the beginning of an epoch, its length does not matter.
        if position.index > 0 && position.index >= batches {
            self.state.position = Position { epoch: position.epoch + 1, index: 0 };
        }
        Ok(())
    }

    /// Whether a validation is configured after the update with the number `state.step`.
    const fn validation_is_due(&self) -> bool {
        is_due(self.state.step, self.config.validate_every)
    }

    /// Validates and saves after an update, as far as each of these is due.
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

    /// Returns a reason to make no more updates, if any process has one. If there are several
    /// reasons, an interruption has the lowest priority, because a run that is complete must not
    /// count as interrupted.
    fn reason_to_stop(&mut self, stop: &AtomicBool) -> Result<Option<StopReason>, TrainError> {
        let interrupted = || stop.load(Ordering::Relaxed).then_some(StopReason::Interrupted);
        let reason = self.state.reason_to_stop(&self.config).or_else(interrupted);
        let reasons = everyone(self.updater.exchange(), reason)?.into_iter().flatten();
        // Of equal keys, this is the first.
        Ok(reasons.min_by_key(|&reason| reason == StopReason::Interrupted))
    }

    /// Makes or skips an update, and returns whether it was made. If `stop` is set during the
    /// update, the state stays as it was before the update.
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
                self.state.nll = Some(measured.nll());
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

    /// Requests the micro-batches of the next update that this process computes. Returns `None` if
    /// `stop` was set in any process before it had all of its micro-batches.
    ///
    /// All updates have the same number of micro-batches, except that the last update of the last
    /// epoch can have fewer. If an epoch ends within an update, the update also takes micro-batches
    /// of the next epoch.
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
                // This happens only if there are no data, or if data have disappeared since the
                // last update.
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

    /// Does the remaining work at the end of training. `reason`: reason why training ends.
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
        // At the end of a complete run, the checkpoint of the last update is not interim, even if
        // it was first saved because of an interruption.
        if !self.saved || (complete && self.state.interim) {
            self.state.training_seconds = clock.seconds();
            self.state.interim &= !complete;
            self.save(improved, observer)?;
        } else if complete {
            // Checkpoints that need not be kept are usually deleted when the last checkpoint is
            // saved. But an earlier process was possibly killed between the two.
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
    /// Position in the data after these micro-batches.
    next: Position,
}

/// Returns a function that converts an error of the source to an error about the micro-batch at
/// this position.
fn cannot_fetch(Position { epoch, index }: Position) -> impl FnOnce(BoxError) -> TrainError {
    move |source| TrainError::Source { epoch, index, source }
}

/// Time in the training loop. `began`: start of the loop in this process. `before`: seconds in the
/// training loop before this process resumed the run.
struct Clock {
    began: Instant,
    before: f64,
}

impl Clock {
    fn seconds(&self) -> f64 {
        self.before + self.began.elapsed().as_secs_f64()
    }
}

/// Whether an action that is due every `every` updates is due after update `step`. If `every` is 0,
/// the action is never due.
const fn is_due(step: u64, every: u64) -> bool {
    every > 0 && step.is_multiple_of(every)
}
