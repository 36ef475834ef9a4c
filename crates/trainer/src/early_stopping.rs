//! Early stopping: ends training if the validation score by the chosen metric no longer improves.

use serde::{Deserialize, Serialize};

use crate::exact;
use crate::{EarlyStoppingConfig, Metric};

/// Validation with the best score so far.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Best {
    /// Number of updates after which the score was measured.
    pub step: u64,
    /// Score by the metric of early stopping.
    #[serde(with = "exact::number")]
    pub score: f64,
}

/// State of early stopping: the best score, and the number of validations since then.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EarlyStopping {
    /// Validation with the best score so far; `None` before the first score.
    pub best: Option<Best>,
    /// Number of validations since the best one. If every score so far was NaN, the number of
    /// validations so far.
    pub without_improvement: u32,
    /// Metric of the scores; `None` before the first validation, or if the run was begun by an
    /// earlier version of this program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<Metric>,
}

impl EarlyStopping {
    /// Records the score of the validation after `step` updates. Returns whether it is better than
    /// the best score so far by more than [`EarlyStoppingConfig::minimum_change`].
    ///
    /// NaN never counts as better, because a run that has diverged must not replace its best
    /// checkpoint.
    pub fn observe(&mut self, config: &EarlyStoppingConfig, step: u64, score: f64) -> bool {
        let improved = match self.best {
            _ if score.is_nan() => false,
            None => true,
            Some(best) => config.metric.improves(score, best.score, config.minimum_change),
        };
        self.metric = Some(config.metric);
        if improved {
            *self = Self { best: Some(Best { step, score }), without_improvement: 0, ..*self };
        } else {
            self.without_improvement = self.without_improvement.saturating_add(1);
        }
        improved
    }

    /// Whether the scores so far belong to another metric than `metric`, so that they cannot be
    /// compared with scores by `metric`.
    pub(crate) fn is_of_another(&self, metric: Metric) -> bool {
        self.metric.is_some_and(|watched| watched != metric)
    }

    /// Whether training ends, because `config.patience` validations in a row brought no
    /// improvement.
    #[must_use]
    pub const fn is_over(&self, config: &EarlyStoppingConfig) -> bool {
        config.patience > 0 && self.without_improvement >= config.patience
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(metric: Metric, patience: u32) -> EarlyStoppingConfig {
        EarlyStoppingConfig { metric, patience, minimum_change: 0.1 }
    }

    #[test]
    fn patience_counts_validations_since_the_best() {
        let config = config(Metric::Bleu, 2);
        let mut stopping = EarlyStopping::default();
        assert!(stopping.observe(&config, 1, 10.0));
        assert!(
            !stopping.observe(&config, 2, 10.05),
            "a change below the minimum is no improvement"
        );
        assert!(!stopping.is_over(&config));
        assert!(stopping.observe(&config, 3, 10.2));
        assert_eq!(stopping.without_improvement, 0);
        assert!(!stopping.observe(&config, 4, 9.0));
        assert!(!stopping.observe(&config, 5, 9.5));
        assert!(stopping.is_over(&config));
        assert_eq!(stopping.best, Some(Best { step: 3, score: 10.2 }));
    }

    #[test]
    fn scores_of_another_metric_are_told_apart() {
        let mut stopping = EarlyStopping::default();
        assert!(!stopping.is_of_another(Metric::Loss), "no metric is known before the first score");
        stopping.observe(&config(Metric::Loss, 0), 1, 2.1);
        assert!(!stopping.is_of_another(Metric::Loss));
        assert!(stopping.is_of_another(Metric::Accuracy));
    }

    #[test]
    fn lower_is_better_for_losses_and_nan_never_is() {
        let config = config(Metric::Loss, 0);
        let mut stopping = EarlyStopping::default();
        assert!(!stopping.observe(&config, 1, f64::NAN));
        assert!(stopping.observe(&config, 2, 3.0));
        assert!(stopping.observe(&config, 3, 2.0));
        assert!(!stopping.observe(&config, 4, 2.5));
        assert!(!stopping.is_over(&config), "no patience means no end");
    }
}
