//! Limits of a training, and the time left until they are reached.

use serde::Serialize;
use taper_data::BatchingReport;
use taper_trainer::TrainingConfig;

/// Limits at which training ends.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct TrainingLimits {
    /// Largest number of updates; `None` if neither updates nor epochs are limited.
    pub last_update: Option<u64>,
    /// Largest duration of the training, in seconds; `None` if it is not limited.
    pub most_seconds: Option<f64>,
}

impl TrainingLimits {
    /// Limits that `config` sets for a training with these batches. `last_update` is an estimate if
    /// not all epochs have the same number of batches.
    pub fn from_config(config: &TrainingConfig, batches: &BatchingReport) -> Self {
        let given = |limit: u64| (limit > 0).then_some(limit);
        let of_epochs = given(config.max_epochs)
            .map(|epochs| batches.batches_of(epochs).div_ceil(config.accumulation as u64));
        Self {
            last_update: given(config.max_updates).into_iter().chain(of_epochs).min(),
            most_seconds: (config.max_minutes > 0.0).then_some(60.0 * config.max_minutes),
        }
    }

    /// Remaining seconds of a training after `step` updates and `elapsed` seconds, if an update
    /// takes `pace` seconds; `None` if there are no limits.
    #[must_use]
    pub fn remaining(&self, step: u64, elapsed: f64, pace: f64) -> Option<f64> {
        let of_updates = self.last_update.map(|last| pace * last.saturating_sub(step) as f64);
        let of_seconds = self.most_seconds.map(|last| (last - elapsed).max(0.0));
        of_updates.into_iter().chain(of_seconds).min_by(f64::total_cmp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_limit_ends_training() {
        let batches =
            BatchingReport { batches: 33, bidirectional_batches: 70, ..BatchingReport::default() };
        let end = |max_updates, max_epochs, max_minutes| {
            let config = TrainingConfig {
                max_updates,
                max_epochs,
                max_minutes,
                accumulation: 4,
                ..TrainingConfig::default()
            };
            // The training has made 10 updates in one minute, and the next updates take half a
            // second each.
            TrainingLimits::from_config(&config, &batches).remaining(10, 60.0, 0.5)
        };
        assert_eq!(end(0, 0, 0.0), None);
        assert_eq!(end(110, 0, 0.0), Some(50.0));
        // 66 batches are 17 updates.
        assert_eq!(end(110, 2, 0.0), Some(3.5));
        assert_eq!(end(12, 2, 0.0), Some(1.0));
        assert_eq!(end(110, 0, 1.5), Some(30.0));
        // 70 and 33 batches are 26 updates.
        let bidirectional = BatchingReport { bidirectional_epochs: 1, ..batches };
        let config = TrainingConfig {
            max_epochs: 2,
            max_updates: 0,
            accumulation: 4,
            ..TrainingConfig::default()
        };
        assert_eq!(
            TrainingLimits::from_config(&config, &bidirectional).remaining(10, 60.0, 0.5),
            Some(8.0)
        );
        // A resumed run can already have exceeded a limit.
        assert_eq!((end(5, 0, 0.0), end(0, 0, 0.5)), (Some(0.0), Some(0.0)));
    }
}
