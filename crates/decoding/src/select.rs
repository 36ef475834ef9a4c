//! From one row of logits to the best tokens it allows.

use crate::tokens::{BOS, EOS, PAD, UNK};
use crate::{DecodingConfig, OutputLimits};

/// A token that may come next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Candidate {
    pub(crate) token: u32,
    pub(crate) log_probability: f64,
}

/// Which tokens may come next.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowed {
    /// `</s>` may come.
    end: bool,
    /// Anything but `</s>` may come.
    others: bool,
    /// `<unk>` may come, where `others` may.
    unknown: bool,
}

impl Allowed {
    /// What may come after `length` output tokens.
    ///
    /// At the maximum length `</s>` is forced and its log-probability counted, so that every
    /// hypothesis is a whole sentence with a true score.
    pub(crate) fn after(length: usize, limits: OutputLimits, config: &DecodingConfig) -> Self {
        Self { end: length >= limits.min_length, others: length < limits.max_length, unknown: config.allow_unknown }
    }

    fn admits(self, token: u32) -> bool {
        match token {
            PAD | BOS => false,
            EOS => self.end,
            UNK => self.others && self.unknown,
            _ => self.others,
        }
    }
}

/// `ln Σ exp(logits)`, or `None` where the row is no distribution: NaN, `+inf`, or only `-inf`.
pub(crate) fn log_normalizer(logits: &[f32]) -> Option<f64> {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    if !max.is_finite() {
        return None;
    }
    // Differences to the maximum are small where they matter, so f32 exponentials suffice; the
    // sum is f64 since it has as many terms as the vocabulary. A NaN survives into the sum.
    let sum: f64 = logits.iter().map(|&x| f64::from((x - max).exp())).sum();
    sum.is_finite().then(|| f64::from(max) + sum.ln())
}

/// The log-probability of a token. Rounding must not lift it above 0: the searches rely on totals
/// that never rise.
pub(crate) fn log_probability(logit: f32, normalizer: f64) -> f64 {
    (f64::from(logit) - normalizer).min(0.0)
}

/// The at most `count` likeliest tokens that `allowed` admits, likeliest first, the lower id first
/// among equals; tokens of probability zero are left out. `None` where the row is no distribution.
pub(crate) fn best_tokens(logits: &[f32], count: usize, allowed: Allowed) -> Option<Vec<Candidate>> {
    let normalizer = log_normalizer(logits)?;
    // Kept sorted by logit, descending. An insertion is rare once the buffer holds good tokens,
    // so this is one comparison per token for the small counts of a beam.
    let mut best: Vec<(f32, u32)> = Vec::with_capacity(count.min(logits.len()) + 1);
    for (token, &logit) in logits.iter().enumerate() {
        let full = best.len() == count;
        // Ids come in rising order, so an equal logit loses to the one that is kept.
        if full && best.last().is_none_or(|&(worst, _)| logit <= worst) {
            continue;
        }
        let token = token as u32;
        if logit == f32::NEG_INFINITY || !allowed.admits(token) {
            continue;
        }
        let position = best.partition_point(|&(kept, _)| kept >= logit);
        best.insert(position, (logit, token));
        best.truncate(count);
    }
    let candidates = best.into_iter().map(|(logit, token)| Candidate { token, log_probability: log_probability(logit, normalizer) });
    Some(candidates.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANYTHING: Allowed = Allowed { end: true, others: true, unknown: true };

    #[test]
    fn ties_go_to_the_lowest_id_and_specials_never_come() {
        let logits = [9.0, 1.0, 9.0, 2.0, 5.0, 7.0, 5.0, 7.0];
        let best = best_tokens(&logits, 5, ANYTHING).expect("finite");
        let tokens: Vec<u32> = best.iter().map(|candidate| candidate.token).collect();
        assert_eq!(tokens, [5, 7, 4, 6, EOS]);
        let all = best_tokens(&logits, 100, ANYTHING).expect("finite");
        assert_eq!(all.len(), 6);
    }

    #[test]
    fn log_probabilities_are_those_of_the_whole_row() {
        let logits = [0.5_f32, -1.0, 2.0, 0.0, 1.5];
        let total: f64 = logits.iter().map(|&x| f64::from(x).exp()).sum();
        for candidate in best_tokens(&logits, 3, ANYTHING).expect("finite") {
            let expected = f64::from(logits[candidate.token as usize]) - total.ln();
            assert!((candidate.log_probability - expected).abs() < 1e-6);
        }
    }

    #[test]
    fn a_shift_of_the_row_changes_nothing_and_large_logits_do_not_overflow() {
        let best = best_tokens(&[0.0, 0.0, 0.0, 1000.0, 999.0], 2, ANYTHING).expect("finite");
        assert!((best[0].log_probability + 0.313_261_687_5).abs() < 1e-6);
        assert!((best[1].log_probability + 1.313_261_687_5).abs() < 1e-6);
    }

    #[test]
    fn rows_that_are_no_distribution_are_refused() {
        assert!(log_normalizer(&[0.0, f32::NAN, 1.0]).is_none());
        assert!(log_normalizer(&[0.0, f32::INFINITY]).is_none());
        assert!(log_normalizer(&[f32::NEG_INFINITY; 3]).is_none());
    }
}
