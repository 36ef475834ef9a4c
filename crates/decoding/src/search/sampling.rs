//! Sampling: each token is drawn from the model's distribution, which can be sharpened by a
//! temperature, or limited to the likeliest tokens.
//!
//! A draw is a function of the seed, the sentence's number, the index of the sample and the
//! position. So a translation depends neither on other sentences nor on batches. If more samples
//! are drawn, the first samples stay the same.

use std::cmp::Ordering;
use std::ops::ControlFlow;

use taper_ops::normalizer::exponential;
use taper_ops::rng::{Counter, mix};

use crate::model::columns::{Logits, RowTokens};
use crate::search::candidates::{Candidate, Weighed, admitted, candidate_of};
use crate::search::constraints::Constraints;
use crate::search::stepwise::{Growing, Growth, NewToken, Output, decode_stepwise};
use crate::{Control, DecodingConfig, Hypothesis, Result, SamplingConfig, Sentence, StepModel};

/// Draws `n_best` outputs for each sentence. There must be at least one element in `settings`, and
/// the elements must differ only in [`LengthSettings`](crate::LengthSettings). The result has, for
/// each sentence and each of the `settings`, the list of outputs, best score first.
pub(crate) fn sample<M: StepModel>(
    model: &M,
    sentences: (&[Sentence<'_>], Output),
    settings: &[DecodingConfig],
    control: &dyn Control,
    observe: &mut dyn FnMut(NewToken) -> ControlFlow<()>,
) -> Result<Vec<Vec<Vec<Hypothesis>>>> {
    let DecodingConfig { sampling, n_best, .. } = &settings[0];
    let drawn = |logits: Logits<'_>, constraints: &Constraints<'_>, row: &Growing<'_>| {
        let draws = Counter::new(mix(sampling.seed, &[row.sentence.number, row.copy as u64]));
        draw(logits, constraints, sampling, draws.f64_at(row.tokens().len() as u64))
    };
    // Without `top_k`, any token can be drawn, so all are needed.
    let enough = if sampling.top_k > 0 { sampling.top_k } else { usize::MAX };
    let growth = Growth { copies: *n_best, enough, choose: drawn };
    decode_stepwise(model, sentences, settings, growth, control, observe)
}

/// Draws a token. `uniform` is a number in `[0, 1)`. Probabilities are summed in ascending order of
/// ids, and the token is the first at which the sum exceeds `uniform`. As in a beam search, a forced
/// token costs nothing by the rules of the library Transformers.
///
/// Returns `None` if the row is not a distribution, and `Some(None)` if no token is possible.
fn draw(
    logits: Logits<'_>,
    constraints: &Constraints<'_>,
    sampling: &SamplingConfig,
    uniform: f64,
) -> Option<Option<Candidate>> {
    let mut drawn = draw_admitted(logits, constraints, sampling, uniform)?;
    if let Some(candidate) = &mut drawn {
        candidate.apply_cost(constraints);
    }
    Some(drawn)
}

fn draw_admitted(
    logits: Logits<'_>,
    constraints: &Constraints<'_>,
    sampling: &SamplingConfig,
    uniform: f64,
) -> Option<Option<Candidate>> {
    let weighed = match logits {
        Logits::All(logits) => Weighed::new(logits, RowTokens::All, constraints)?,
        Logits::Listed { tokens, logits } => {
            Weighed::new(logits, RowTokens::Listed(tokens), constraints)?
        }
        Logits::Likeliest(found) => {
            // `top_k` is set; otherwise all logits would have been requested.
            let tokens = admitted(found, constraints)?.take(sampling.top_k).map(Weight::new);
            let drawn = draw_of(tokens.collect(), true, sampling, uniform);
            return Some(drawn.map(|entry| candidate_of(found, entry.token, entry.logit)));
        }
    };
    if let Some(token) = constraints.forced {
        return Some(weighed.possible(token).then(|| weighed.candidate(token)));
    }
    let admitted = weighed
        .all()
        .filter(|&(token, logit)| logit != f32::NEG_INFINITY && constraints.admits(token));
    let mut tokens: Vec<Weight> = admitted.map(Weight::new).collect();
    if sampling.top_k > 0 && sampling.top_k < tokens.len() {
        tokens.select_nth_unstable_by(sampling.top_k, Weight::likeliest_first);
        tokens.truncate(sampling.top_k);
    }
    let is_cut = tokens.len() < weighed.len();
    Some(draw_of(tokens, is_cut, sampling, uniform).map(|entry| weighed.candidate(entry.token)))
}

/// Draws one of `tokens`, after limiting them by `top_p` and `epsilon`. `is_cut` must be true if
/// `tokens` can be in any order; if it is false, they must be in ascending order of ids.
fn draw_of(
    mut tokens: Vec<Weight>,
    is_cut: bool,
    sampling: &SamplingConfig,
    uniform: f64,
) -> Option<Weight> {
    let max = tokens.iter().fold(f32::NEG_INFINITY, |max, entry| max.max(entry.logit));
    for entry in &mut tokens {
        entry.weight =
            f64::from(exponential((f64::from(entry.logit - max) / sampling.temperature) as f32));
    }
    if sampling.top_p < 1.0 {
        tokens.sort_unstable_by(Weight::likeliest_first);
        let total: f64 = tokens.iter().map(|entry| entry.weight).sum();
        let enough = sampling.top_p * total;
        tokens.truncate(reached(&tokens, |sum| sum >= enough) + 1);
    }
    if sampling.epsilon > 0.0 {
        let total: f64 = tokens.iter().map(|entry| entry.weight).sum();
        let likeliest = tokens.iter().fold(0.0, |most: f64, entry| most.max(entry.weight));
        // The likeliest token can always be drawn.
        let least = (sampling.epsilon * total).min(likeliest);
        tokens.retain(|entry| entry.weight >= least);
    }
    if is_cut || sampling.top_p < 1.0 {
        // Probabilities are summed in ascending order of ids, whether or not the tokens were
        // limited. So a limit that excludes no token changes no draw.
        tokens.sort_unstable_by_key(|entry| entry.token);
    }
    let total: f64 = tokens.iter().map(|entry| entry.weight).sum();
    // `uniform` is a multiple of 2⁻⁵³, and stands for all real numbers up to the next multiple. It
    // is replaced by the middle of this interval. Otherwise, for `uniform` = 0, the first token
    // would be drawn even if it is very unlikely.
    let uniform = uniform + f64::EPSILON / 4.0;
    let drawn = reached(&tokens, |sum| sum > uniform * total);
    tokens.into_iter().nth(drawn)
}

/// A token that can be drawn.
struct Weight {
    token: u32,
    logit: f32,
    /// Probability at the configured temperature, up to a factor that is the same for all tokens.
    weight: f64,
}

impl Weight {
    fn new((token, logit): (u32, f32)) -> Self {
        Self { token, logit, weight: 0.0 }
    }

    fn likeliest_first(&self, other: &Self) -> Ordering {
        other.logit.total_cmp(&self.logit).then(self.token.cmp(&other.token))
    }
}

/// Calls `enough` for each token with the sum of the weights up to and including this token.
/// Returns the index of the first token for which `enough` is true, or the last index if there is
/// no such token, which can happen because of rounding.
fn reached(tokens: &[Weight], enough: impl Fn(f64) -> bool) -> usize {
    let mut cumulated = 0.0;
    let place = tokens.iter().position(|entry| {
        cumulated += entry.weight;
        enough(cumulated)
    });
    place.unwrap_or(tokens.len().saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::{END, OURS};

    const LOGITS: [f32; 8] = [9.0, 9.0, 9.0, -50.0, 2.0, 1.0, 0.0, 1.0];

    fn drawn(sampling: &SamplingConfig, uniform: f64) -> u32 {
        drawn_from(&LOGITS, sampling, uniform)
    }

    fn drawn_from(logits: &[f32], sampling: &SamplingConfig, uniform: f64) -> u32 {
        let config = DecodingConfig::default();
        let sentence =
            Sentence { source: &[5, END], prefix: &[], phrases: &[], candidates: None, number: 0 };
        let limits = sentence.limits(&config, None);
        let constraints = Constraints::after(&OURS, 0, &[], &sentence, limits, &config);
        draw(Logits::All(logits), &constraints, sampling, uniform)
            .expect("a distribution")
            .expect("possible")
            .token
    }

    #[test]
    fn draws_follow_the_distribution() {
        let sampling = SamplingConfig { temperature: 2.0, ..SamplingConfig::default() };
        let weights: Vec<f64> = LOGITS[4..].iter().map(|&x| (f64::from(x) / 2.0).exp()).collect();
        let total: f64 = weights.iter().sum();
        let count = 20_000;
        let draws: Vec<u32> =
            (0..count).map(|i| drawn(&sampling, (f64::from(i) + 0.5) / f64::from(count))).collect();
        for (token, weight) in (4..).zip(weights) {
            let share =
                draws.iter().filter(|&&drawn| drawn == token).count() as f64 / f64::from(count);
            assert!((share - weight / total).abs() < 1e-3, "{token}: {share} {}", weight / total);
        }
    }

    #[test]
    fn cuts_keep_the_likeliest() {
        let with = |top_k, top_p| SamplingConfig {
            temperature: 1.0,
            top_k,
            top_p,
            ..SamplingConfig::default()
        };
        let all = |sampling: &SamplingConfig| -> Vec<u32> {
            let mut tokens: Vec<u32> =
                (0..1000).map(|i| drawn(sampling, f64::from(i) / 1000.0)).collect();
            tokens.sort_unstable();
            tokens.dedup();
            tokens
        };
        assert_eq!(all(&with(1, 1.0)), [4]);
        assert_eq!(all(&with(2, 1.0)), [4, 5]);
        assert_eq!(all(&with(0, 1.0)), [4, 5, 6, 7]);
        // The probabilities are 0.534, 0.197, 0.197 and 0.072.
        assert_eq!(all(&with(0, 0.5)), [4]);
        assert_eq!(all(&with(0, 0.6)), [4, 5]);
        assert_eq!(all(&with(0, 0.8)), [4, 5, 7]);
        assert_eq!(all(&with(2, 0.99)), [4, 5]);
        assert_eq!(all(&with(0, 1.0 - f64::EPSILON)), [4, 5, 6, 7]);
        let epsilon = |epsilon| SamplingConfig { epsilon, ..with(0, 1.0) };
        assert_eq!(all(&epsilon(0.07)), [4, 5, 6, 7]);
        assert_eq!(all(&epsilon(0.1)), [4, 5, 7]);
        assert_eq!(all(&epsilon(0.9)), [4]);
        // If `top_k` leaves fewer tokens, each has a larger share.
        assert_eq!(all(&SamplingConfig { epsilon: 0.2, ..with(3, 1.0) }), [4, 5, 7]);
        // Each of two equally likely tokens has exactly half of the probability, so with a `top_p`
        // of 0.5, the token with the lower id is enough.
        for uniform in [0.0, 0.5, 1.0 - f64::EPSILON] {
            assert_eq!(drawn_from(&[9.0, 9.0, 9.0, -50.0, 2.0, 2.0], &with(0, 0.5), uniform), 4);
        }
    }
}
