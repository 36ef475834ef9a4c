//! Advice on how to continue a training that has reached one of its limits: which limit to raise in
//! its recipe (the settings of the training), and how the learning rate then changes.

use taper_trainer::{StopReason, TrainingConfig};

/// Change of a recipe that lets its training continue after it has reached a limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Continuation {
    /// `training.max_updates` is raised to this number.
    Updates {
        /// New limit: twice the number of updates so far.
        updates: u64,
        /// Learning rates before and after the beginning of the continuation, or `None` if the
        /// schedule does not depend on the number of updates.
        seam: Option<Seam>,
    },
    /// `training.max_epochs` is raised.
    Epochs,
    /// `training.max_minutes` is raised.
    Minutes,
    /// `training.early_stopping.patience` is raised.
    Patience,
}

/// Learning rates before and after the beginning of a continuation. They differ if the rate has
/// fallen to its last value and the schedule then gets more updates.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Seam {
    /// Learning rate of the last update before the continuation.
    pub before: f64,
    /// Learning rate of the first update of the continuation.
    pub after: f64,
}

impl Continuation {
    /// Finds the change of the recipe that lets a training continue. The training has ended after
    /// `step` updates because of `reason`. `d_model`: width of the model.
    pub(super) fn find(
        reason: StopReason,
        step: u64,
        training: &TrainingConfig,
        d_model: usize,
    ) -> Self {
        match reason {
            StopReason::MaxEpochs => Self::Epochs,
            StopReason::MaxMinutes => Self::Minutes,
            StopReason::EarlyStopping => Self::Patience,
            StopReason::MaxUpdates | StopReason::Interrupted => {
                let (schedule, updates) = (&training.schedule, step.saturating_mul(2));
                let seam = schedule.kind.needs_horizon().then(|| Seam {
                    before: schedule.at(step, d_model, training.max_updates),
                    after: schedule.at(step + 1, d_model, updates),
                });
                Self::Updates { updates, seam }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use taper_trainer::{ScheduleConfig, ScheduleKind};

    #[test]
    fn a_rate_that_has_fallen_to_its_end_rises_again() {
        let continuation_for = |kind, reason| {
            let schedule =
                ScheduleConfig { kind, learning_rate: 1e-3, warmup: 10, ..Default::default() };
            let training = TrainingConfig { schedule, max_updates: 110, ..Default::default() };
            Continuation::find(reason, 110, &training, 64)
        };
        let Continuation::Updates { updates: 220, seam: Some(seam) } =
            continuation_for(ScheduleKind::Linear, StopReason::MaxUpdates)
        else {
            panic!("a linear schedule has a seam");
        };
        assert_eq!(seam.before, 0.0);
        assert!((seam.after - 1e-3 * (220.0 - 111.0) / 210.0).abs() < 1e-12, "{seam:?}");
        for kind in [ScheduleKind::Noam, ScheduleKind::InverseSqrt, ScheduleKind::Constant] {
            let continuation = continuation_for(kind, StopReason::MaxUpdates);
            assert_eq!(continuation, Continuation::Updates { updates: 220, seam: None });
        }
        assert_eq!(
            continuation_for(ScheduleKind::Cosine, StopReason::EarlyStopping),
            Continuation::Patience
        );
    }
}
