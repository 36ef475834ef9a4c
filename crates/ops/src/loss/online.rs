//! The softmax of a token, computed online: one segment of the vocabulary after the other (Milakov
//! and Gimelshein 2018, section 3).

use crate::float::{Float, vectorised};
use crate::spec::{LossSums, smoothed};
use crate::sums::{blocked_max, blocked_sum, blocked_sums};

/// State of a token's softmax after the segments so far.
#[derive(Clone, Copy)]
pub(super) struct Online<T> {
    largest: T,
    /// Index of the first class with the largest logit.
    best: usize,
    /// `Σ exp(logit - largest)` over the classes so far.
    total: T,
    /// `Σ exp(logit - largest) (logit - logit of the partner)` over the classes so far. The partner
    /// of a token is the same token in another forward pass (R-Drop); without a partner, the sum is
    /// not used.
    apart: T,
    logit_sum: f64,
    true_logit: T,
}

/// Values of a token's softmax that are kept, because the gradient with respect to the logits is
/// computed from them.
#[derive(Clone, Copy, Default)]
pub(super) struct Softmax<T> {
    /// Logarithm of the softmax's denominator, `ln Σ exp(logit)`.
    pub(super) log_sum_exp: T,
    /// Kullback–Leibler divergence KL(p‖q), where p is the distribution of this token and q the
    /// distribution of its partner; 0 without a partner.
    pub(super) divergence: T,
}

impl<T: Float> Default for Online<T> {
    fn default() -> Self {
        let zero = T::default();
        Self {
            largest: T::NEGATIVE_INFINITY,
            best: usize::MAX,
            total: zero,
            apart: zero,
            logit_sum: 0.0,
            true_logit: zero,
        }
    }
}

impl<T: Float> Online<T> {
    fn log_sum_exp(&self) -> T {
        self.largest + self.total.ln()
    }

    /// Returns the softmax after all segments. `partner`: state of the token's partner, if it has
    /// one.
    pub(super) fn softmax(&self, partner: Option<&Self>) -> Softmax<T> {
        let log_sum_exp = self.log_sum_exp();
        // Σ p (ln p - ln q), with ln p = logit - log_sum_exp.
        let divergence = partner.map_or(T::default(), |partner| {
            self.apart / self.total - (log_sum_exp - partner.log_sum_exp())
        });
        Softmax { log_sum_exp, divergence }
    }

    /// Returns the loss sums of this token alone.
    pub(super) fn sums(
        &self,
        softmax: &Softmax<T>,
        target: usize,
        classes: usize,
        smoothing: f64,
    ) -> LossSums {
        let log_total = softmax.log_sum_exp.wide();
        let nll = log_total - self.true_logit.wide();
        let uniform = log_total - self.logit_sum / classes as f64;
        LossSums {
            smoothed: smoothed(nll, uniform, smoothing),
            nll,
            correct: usize::from(self.best == target),
            divergence: softmax.divergence.wide(),
        }
    }
}

vectorised! {
    /// Adds the logits of a segment of classes, which begins at class `first`, to the state of a
    /// token. `target` is the index of the true class within the segment. If the class is not in
    /// the segment, `target` is at least the segment's length. `partner`: logits of the token's
    /// partner in the segment, if it has one.
    fn online<T>(
        token: &mut Online<T>,
        logits: &[T],
        partner: Option<&[T]>,
        target: usize,
        first: usize,
    ) {
        let largest = blocked_max(logits);
        if largest > token.largest {
            let factor = (token.largest - largest).exp();
            token.total *= factor;
            token.apart *= factor;
            token.largest = largest;
            token.best = first + logits.iter().position(|&logit| logit == largest).unwrap_or(0);
        }
        // If all logits so far are −∞, their differences from the largest would be NaN, so 0 is
        // subtracted instead. A NaN among the logits, which `largest` leaves out, still makes the
        // sum NaN.
        let is_none = token.largest == T::NEGATIVE_INFINITY;
        let base = if is_none { T::default() } else { token.largest };
        match partner {
            None => token.total += blocked_sum([logits], |[logit]| (logit - base).exp()),
            Some(partner) => {
                let zero = T::default();
                let [total, apart] = blocked_sums([logits, partner], |[logit, other]| {
                    let value = (logit - base).exp();
                    // A class without probability adds nothing, even if its logit is infinite.
                    [value, if value == zero { zero } else { value * (logit - other) }]
                });
                token.total += total;
                token.apart += apart;
            }
        }
        token.logit_sum += blocked_sum([logits], |[logit]| logit).wide();
        if let Some(logit) = logits.get(target) {
            token.true_logit = *logit;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks rows of logits in which the whole first segment, or all classes but one, have the
    /// logit −∞.
    #[test]
    fn classes_with_logits_of_minus_infinity_have_no_part_in_the_loss() {
        const NONE: f32 = f32::NEG_INFINITY;
        let finite = [0.5f32, -1.0, 2.0];
        let of = |segments: &[&[f32]], target: usize| {
            let (mut token, mut first) = (Online::<f32>::default(), 0);
            for segment in segments {
                online(&mut token, segment, None, target.wrapping_sub(first), first);
                first += segment.len();
            }
            token.sums(&token.softmax(None), target, first, 0.0)
        };
        let alone = of(&[&finite], 2);
        assert_eq!(of(&[&[NONE; 20], &finite], 22), alone);
        assert_eq!(of(&[&finite, &[NONE; 20]], 2), alone);
        assert!(alone.nll.is_finite() && alone.smoothed == alone.nll && alone.correct == 1);
        assert!(of(&[&[f32::NAN; 20], &finite], 22).nll.is_nan());
        // Pairs of rows, as in R-Drop, with the same banned classes.
        let pair = |banned: &[f32]| {
            let other = [0.1f32, 0.2, 0.3];
            let (mut one, mut two) = (Online::<f32>::default(), Online::<f32>::default());
            online(&mut one, banned, Some(banned), usize::MAX, 0);
            online(&mut two, banned, Some(banned), usize::MAX, 0);
            online(&mut one, &finite, Some(&other), 1, banned.len());
            online(&mut two, &other, Some(&finite), 1, banned.len());
            one.softmax(Some(&two)).divergence
        };
        assert!(pair(&[]) > 0.0);
        assert_eq!(pair(&[NONE; 20]), pair(&[]));
    }
}
