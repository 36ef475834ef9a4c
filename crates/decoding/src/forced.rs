//! Forced scoring: probabilities of given translations under the model.

use serde::Serialize;

use crate::model::columns::{Columns, Logits};
use crate::model::step::{StepInput, TopK, drop_cancelled, select_if_changed, step_rows, wanted};
use crate::search::candidates::{Row, candidate_of};
use crate::tokens::SpecialIds;
use crate::{Control, DecodingConfig, DecodingError, OutputLimits, Result, StepModel};

/// Probability and score of a given translation under the model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ForcedScore {
    /// Natural logarithm of the probability of each token, given the tokens before it; the last
    /// entry is that of the closing `</s>`. Empty only for the empty translation of an empty
    /// source.
    pub token_log_probabilities: Vec<f64>,
    /// Sum of `token_log_probabilities`, added in order, as in a search.
    pub log_probability: f64,
    /// [Score](DecodingConfig::score) of `log_probability`.
    pub score: f64,
    /// Number of scored tokens, including the closing `</s>`.
    pub length: usize,
}

impl ForcedScore {
    fn new(
        token_log_probabilities: Vec<f64>,
        limits: OutputLimits,
        config: &DecodingConfig,
    ) -> Self {
        let length = token_log_probabilities.len();
        let log_probability = token_log_probabilities.iter().fold(0.0, |sum, x| sum + x);
        Self {
            token_log_probabilities,
            log_probability,
            score: config.score(log_probability, length, limits),
            length,
        }
    }

    /// Returns the score of the empty translation of an empty source, which has probability 1 and
    /// needs no model.
    pub(crate) fn empty() -> Self {
        Self { token_log_probabilities: Vec::new(), log_probability: 0.0, score: 0.0, length: 0 }
    }
}

/// Scores one batch: `targets[i]` (without `<s>` and `</s>`) as a translation of `sources[i]`
/// (which ends with `</s>`). Targets can contain tokens that a search would not produce, such as
/// `<unk>`.
///
/// Tokens go through the same steps and the same normalisation as in a search, so that the output
/// of a search gets the same score here. There are three exceptions, which only a search applies:
/// penalties on repeated tokens, the limits of a shortlist, and the rule of the library
/// Transformers that forced tokens do not count ([`SearchRules`](crate::SearchRules)). As soon as
/// all tokens of a target are scored, the target is removed from the state of the model, so that
/// later steps do not compute it.
///
/// # Errors
/// [`DecodingError::UnequalCounts`], [`DecodingError::Target`],
/// [`DecodingError::NotADistribution`], [`DecodingError::NotFinite`] if a token is impossible
/// (probability 0), and errors of the model.
pub fn forced_scores<M: StepModel>(
    model: &M,
    sources: &[&[u32]],
    targets: &[&[u32]],
    config: &DecodingConfig,
) -> Result<Vec<ForcedScore>> {
    scores_of(model, sources, targets, config, &())
}

/// Scores like [`forced_scores`]. If `control` cancels a sentence, its result has only the tokens
/// that were scored before that.
pub(crate) fn scores_of<M: StepModel>(
    model: &M,
    sources: &[&[u32]],
    targets: &[&[u32]],
    config: &DecodingConfig,
    control: &dyn Control,
) -> Result<Vec<ForcedScore>> {
    check_counts(sources.len(), targets.len())?;
    for (sentence, target) in targets.iter().enumerate() {
        check_target(sentence, target, model.vocabulary_size(), model.special())?;
    }
    let mut scores: Vec<Vec<f64>> =
        targets.iter().map(|target| Vec::with_capacity(target.len() + 1)).collect();
    // For each row of the model's batch, the index of its sentence.
    let mut active = wanted(control, sources.len());
    let score = |(source, token_scores): (&&[u32], Vec<f64>)| {
        let limits = config.output_limits(source.len().saturating_sub(1));
        ForcedScore::new(token_scores, limits, config)
    };
    if active.is_empty() {
        return Ok(sources.iter().zip(scores).map(score).collect());
    }
    let begun: Vec<&[u32]> = active.iter().map(|&sentence| sources[sentence]).collect();
    let (mut state, columns) = (model.start(&begun)?, Columns::all(model.vocabulary_size()));
    let end = model.special().end();
    let mut position = 0;
    loop {
        drop_cancelled(model, &mut state, control, &mut active, |&sentence| (sentence, 1))?;
        if active.is_empty() {
            break;
        }
        let input = |&sentence: &usize| match position {
            0 => model.first_input(sources[sentence]),
            _ => targets[sentence][position - 1],
        };
        let inputs: Vec<u32> = active.iter().map(input).collect();
        let next = |&sentence: &usize| targets[sentence].get(position).copied().unwrap_or(end);
        let top_k = TopK::single(model, active.iter().map(next).collect());
        let sentence_of = |row: usize| active[row];
        let input = StepInput { tokens: &inputs, top_k, columns: &columns, sentence_of };
        let step_scores = step_rows(model, &mut state, input, |row, logits| {
            finite_log_probability(logits, next(&active[row]), active[row], position)
        })?;
        active.iter().zip(step_scores).for_each(|(&sentence, score)| scores[sentence].push(score));

        let old_rows = active.len();
        let kept_rows: Vec<usize> =
            (0..old_rows).filter(|&row| position < targets[active[row]].len()).collect();
        active = kept_rows.iter().map(|&row| active[row]).collect();
        if !active.is_empty() {
            select_if_changed(model, &mut state, old_rows, &kept_rows)?;
        }
        position += 1;
    }
    Ok(sources.iter().zip(scores).map(score).collect())
}

/// Returns the log-probability of `token` at `position` of a sentence.
///
/// # Errors
/// If `logits` are not a distribution, or give the token probability 0.
fn finite_log_probability(
    logits: Logits<'_>,
    token: u32,
    sentence: usize,
    position: usize,
) -> Result<f64> {
    let log_probability = log_probability(logits, token)
        .ok_or(DecodingError::NotADistribution { sentence, position })?;
    match log_probability.is_finite() {
        true => Ok(log_probability),
        false => Err(DecodingError::NotFinite { quantity: "the log-probability", sentence }),
    }
}

/// Returns the log-probability of a token; `None` if the logits are not a distribution.
fn log_probability(logits: Logits<'_>, token: u32) -> Option<f64> {
    match logits {
        Logits::All(logits) => Row::new(logits).map(|row| row.log_probability(token as usize)),
        // Never occurs here: only a shortlist makes this form, and targets are scored without one.
        Logits::Listed { .. } => None,
        Logits::Likeliest(likeliest) => {
            let is_distribution = likeliest.normalizer.is_finite();
            is_distribution.then(|| candidate_of(likeliest, token, likeliest.also).log_probability)
        }
    }
}

/// Returns an error if the numbers of sources and targets differ.
pub(crate) fn check_counts(sources: usize, targets: usize) -> Result<()> {
    if sources == targets { Ok(()) } else { Err(DecodingError::UnequalCounts { sources, targets }) }
}

/// Returns an error if a target contains ids that no translation can contain.
pub(crate) fn check_target(
    sentence: usize,
    target: &[u32],
    vocabulary: usize,
    special: &SpecialIds,
) -> Result<()> {
    let refused = target
        .iter()
        .enumerate()
        .find(|&(_, &token)| token as usize >= vocabulary || special.is_no_output(token));
    match refused {
        None => Ok(()),
        Some((position, &token)) => {
            Err(DecodingError::Target { sentence, position, token, vocabulary })
        }
    }
}
