//! Validation and reports in the training loop.

use taper_model::Model;

use super::{Clock, Trainer};
use crate::checkpoints::LAST;
use crate::exchange::{agree, everyone, machine};
use crate::{Event, ExpertLoad, Observer, ProcessTime, Scores, Timing, TrainError, Validator};

impl<M: Model> Trainer<M> {
    /// Counts and reports a skipped update. Returns an error if too many updates were skipped in a
    /// row.
    pub(super) fn skip(
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

    /// Reports the averages over the updates since the last log event, and sets the sums from which
    /// they are computed to zero.
    pub(super) fn log(&mut self, observer: &mut dyn Observer) -> Result<(), TrainError> {
        let time = std::mem::take(&mut self.time);
        self.whole_time += &time;
        let timing = Timing { processes: self.times(time)?, ..self.timing() };
        let window = std::mem::take(&mut self.state.window);
        let tokens = window.tokens as f64;
        let event = Event::Log {
            step: self.state.step,
            epoch: self.state.position.epoch,
            loss: window.smoothed_sum / tokens,
            nll: window.nll_sum / tokens,
            divergence: (self.config.r_drop > 0.0).then(|| window.divergence_sum / tokens),
            experts: ExpertLoad::from_routing(window.routing),
            accuracy: M::predicts_classes().then(|| window.correct as f64 / tokens),
            learning_rate: self.learning_rate,
            gradient_norm: window.gradient_norm_sum / window.updates as f64,
            noise_scale: window.noise.scale(),
            layers: self.updater.take_layer_norms(),
            tokens: self.state.tokens,
            window_tokens: window.tokens,
            timing,
        };
        self.tell(observer, &event);
        Ok(())
    }

    /// Returns the `time` of each process, by rank, or an empty list if there is only one process.
    pub(super) fn times(&mut self, time: ProcessTime) -> Result<Vec<ProcessTime>, TrainError> {
        let exchange = self.updater.exchange();
        if exchange.size() == 1 {
            return Ok(Vec::new());
        }
        let all = everyone(exchange, ProcessTime { host: machine(), ..time })?;
        Ok(all.into_iter().map(ProcessTime::with_plain_name).collect())
    }

    /// Validates the model, and returns whether it is the best so far. If the validation fails, the
    /// state is saved before the error is returned, so that no updates are lost.
    pub(super) fn validate(
        &mut self,
        validate: &mut dyn Validator<M>,
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
        validate: &mut dyn Validator<M>,
        observer: &mut dyn Observer,
    ) -> Result<bool, TrainError> {
        let step = self.state.step;
        let scores = if self.updater.exchange().rank() == 0 {
            self.updater
                .with_model(&self.model, |model| validate.validate(model, step))
                .map_err(|source| TrainError::Validation { step, source })
        } else {
            Ok(Scores::default())
        };
        let scores = agree(self.updater.exchange(), scores)?;
        let bits: Vec<(String, u64)> =
            scores.iter().map(|(name, score)| (name.to_owned(), score.to_bits())).collect();
        let mut scores = Scores::default();
        for (name, bits) in everyone(self.updater.exchange(), bits)?.swap_remove(0) {
            scores.insert(&name, f64::from_bits(bits));
        }
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
        // A model with a loss far above that of random guesses is never the best, and neither is
        // one whose score is NaN.
        let judged = if self.goes_astray(&scores) { f64::NAN } else { score };
        let early = &self.config.early_stopping;
        let improved = self.state.early_stopping.observe(early, step, judged);
        let (epoch, timing) = (self.state.position.epoch, self.timing());
        let samples = validate.samples();
        self.tell(observer, &Event::Validation { step, epoch, scores, improved, samples, timing });
        Ok(improved)
    }

    /// Passes an event to the observer, in process 0 only. If the observer fails, the error is
    /// stored, and training continues to the next point where the state can be saved.
    pub(super) fn tell(&mut self, observer: &mut dyn Observer, event: &Event) {
        if self.updater.exchange().rank() > 0 {
            return;
        }
        if let Err(source) = observer.observe(event) {
            self.unobserved.get_or_insert(TrainError::Observer { step: event.step(), source });
        }
    }

    /// Calls [`Observer::updated`] after an update.
    pub(super) fn tell_updated(&mut self, observer: &mut dyn Observer) {
        if self.updater.exchange().rank() > 0 {
            return;
        }
        let step = self.state.step;
        if let Err(source) = observer.updated(step, self.state.training_seconds) {
            self.unobserved.get_or_insert(TrainError::Observer { step, source });
        }
    }

    pub(super) fn timing(&self) -> Timing {
        let window = &self.state.window;
        let tokens_per_second =
            (window.seconds > 0.0).then(|| window.tokens as f64 / window.seconds);
        let (elapsed_seconds, processes) = (self.state.training_seconds, Vec::new());
        Timing { elapsed_seconds, tokens_per_second, processes }
    }
}
