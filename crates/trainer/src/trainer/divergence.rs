//! Detection of divergence. Training counts as diverged in two cases: if the validation loss is far
//! above the loss of random guesses in several validations and does not decrease, or if it is far
//! above that loss when training ends.
//!
//! In two cases, such a high loss is no divergence. First, a model that overfits can have a high
//! validation loss, because it gives wrong answers a high probability. But its training loss is
//! low. So training only counts as diverged if the training loss is far above that of random
//! guesses, too. Second, a model can begin with a high loss, for example because of large word
//! vectors. But then its validation loss decreases.

use serde::{Deserialize, Serialize};
use taper_model::Model;

use super::Trainer;
use crate::checkpoints::BEST;
use crate::exact;
use crate::{Scores, TrainError};

/// Number of consecutive validations after which training ends, if their losses are far above that
/// of random guesses and do not reach a new minimum.
const MOST_VALIDATIONS: u32 = 3;

/// Record of the consecutive validations whose loss is far above that of random guesses.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DivergenceMonitor {
    /// Lowest loss of the recorded validations, in nats per predicted token or class.
    #[serde(with = "exact::number")]
    lowest: f64,
    /// Loss of the last validation, in nats per predicted token or class.
    #[serde(with = "exact::number")]
    last: f64,
    /// Number of validations since the lowest loss; 1 after the first validation.
    validations: u32,
}

impl DivergenceMonitor {
    /// Returns the record after one more validation with the loss `loss`. A loss that is NaN counts
    /// as infinite, so that every finite loss after it is a new lowest loss.
    fn after(before: Option<Self>, loss: f64) -> Self {
        match before {
            Some(before) if loss < before.lowest.min(f64::INFINITY) => {
                Self { lowest: loss, last: loss, validations: 0 }
            }
            Some(before) => Self { last: loss, validations: before.validations + 1, ..before },
            None => Self { lowest: loss, last: loss, validations: 1 },
        }
    }
}

/// Returns the limit, in nats, above which a loss counts as far above that of random guesses among
/// `classes` classes.
fn far_above(classes: usize) -> f64 {
    1.5 * (classes as f64).ln() + 1.0
}

impl<M: Model> Trainer<M> {
    /// Records a validation. Returns true if its loss is not finite. Also returns true if both the
    /// loss of the validation and the loss of the last update are far above that of random guesses.
    /// Such a validation never counts as the best.
    pub(super) fn goes_astray(&mut self, scores: &Scores) -> bool {
        let loss = scores.get("nll").or_else(|| scores.get("loss"));
        let is_far = |loss: f64| match self.model.answer_classes() {
            Some(classes) => {
                let far = far_above(classes);
                loss > far && self.state.nll.is_some_and(|nll| nll > far)
            }
            None => false,
        };
        let astray = loss.filter(|&loss| !loss.is_finite() || is_far(loss));
        self.state.astray = astray.map(|loss| DivergenceMonitor::after(self.state.astray, loss));
        astray.is_some()
    }

    /// Returns an error if training has diverged. This is so if [`MOST_VALIDATIONS`] consecutive
    /// validations had losses far above that of random guesses and none of them was a new lowest
    /// loss. At the end of training (`is_complete`), it is enough if the last validation had such a
    /// loss.
    ///
    /// # Errors
    /// If training has diverged.
    pub(super) fn require_convergence(&self, is_complete: bool) -> Result<(), TrainError> {
        let most = if is_complete { 0 } else { MOST_VALIDATIONS };
        let Some(astray) = self.state.astray.filter(|astray| astray.validations >= most) else {
            return Ok(());
        };
        let mut place = self.model.answer_classes().map_or_else(String::new, |classes| {
            let guessing = (classes as f64).ln();
            format!(", far above the {guessing:.2} of guessing among {classes} classes")
        });
        if astray.validations > 0 {
            place += ", and not on its way down";
        }
        let best = self.state.early_stopping.best;
        let best = best.and_then(|best| Some((best, self.checkpoints.resolve(BEST).ok()?)));
        Err(TrainError::Astray {
            step: self.state.step,
            loss: astray.last,
            place,
            best: best.map(|(best, path)| (best.step, path)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(losses: &[f64]) -> Vec<u32> {
        let mut astray = None;
        losses
            .iter()
            .map(|&loss| {
                let now = DivergenceMonitor::after(astray, loss);
                astray = Some(now);
                now.validations
            })
            .collect()
    }

    #[test]
    fn validations_count_since_the_lowest() {
        assert_eq!(counts(&[30.0, 31.0, 40.0]), [1, 2, 3]);
        assert_eq!(counts(&[300.0, 200.0, 210.0, 205.0, 100.0]), [1, 0, 1, 2, 0]);
        assert_eq!(counts(&[f64::NAN, f64::NAN, f64::INFINITY]), [1, 2, 3]);
        assert_eq!(counts(&[f64::NAN, 300.0, 200.0, f64::NAN, 210.0]), [1, 0, 0, 1, 2]);
    }

    #[test]
    fn losses_near_that_of_guessing_are_no_reason() {
        for classes in [2_usize, 10, 300, 32_000] {
            let guessing = (classes as f64).ln();
            assert!(far_above(classes) > guessing + 1.3, "{classes}");
            assert!(far_above(classes) < 2.0 * guessing + 1.0, "{classes}");
        }
    }
}
