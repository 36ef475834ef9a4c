//! Greedy search: the likeliest token at each position.

use rayon::prelude::*;

use crate::select::{Allowed, Candidate, best_tokens};
use crate::step::{checked_step, select_if_changed};
use crate::tokens::{BOS, EOS};
use crate::{DecodingConfig, DecodingError, Hypothesis, OutputLimits, Result, StepModel};

/// A sentence whose output is still growing; its place among the active ones is its model row.
struct Active {
    sentence: usize,
    limits: OutputLimits,
    tokens: Vec<u32>,
    log_probability: f64,
}

/// Translates one batch by taking the likeliest allowed token at each position, the lowest id
/// among equals. Equal to [`beam_search`](crate::beam_search) with a beam of 1.
///
/// `sources` end with `</s>`; each gives one hypothesis, in their order. A sentence leaves the
/// batch as soon as it ends.
///
/// # Errors
/// [`DecodingError::NotADistribution`] and [`DecodingError::DeadEnd`] with the index of the source,
/// and whatever the model reports.
pub fn greedy_search<M: StepModel>(model: &M, sources: &[&[u32]], config: &DecodingConfig) -> Result<Vec<Hypothesis>> {
    if sources.is_empty() {
        return Ok(Vec::new());
    }
    let mut finished: Vec<Option<Hypothesis>> = vec![None; sources.len()];
    let mut active: Vec<Active> = sources
        .iter()
        .enumerate()
        .map(|(sentence, source)| Active {
            sentence,
            limits: config.output_limits(source.len().saturating_sub(1)),
            tokens: Vec::new(),
            log_probability: 0.0,
        })
        .collect();
    let mut state = model.start(sources)?;
    while !active.is_empty() {
        let inputs: Vec<u32> = active.iter().map(|row| row.tokens.last().copied().unwrap_or(BOS)).collect();
        let logits = checked_step(model, &mut state, &inputs)?;
        let chosen: Vec<Candidate> = logits
            .par_chunks(model.vocabulary_size())
            .zip(&active)
            .map(|(logits, row)| likeliest(logits, row, config))
            .collect::<Result<_>>()?;

        let old_rows = active.len();
        let mut kept_rows = Vec::with_capacity(old_rows);
        let mut still_active = Vec::with_capacity(old_rows);
        for (old_row, (mut row, candidate)) in active.into_iter().zip(chosen).enumerate() {
            row.log_probability += candidate.log_probability;
            if candidate.token == EOS {
                finished[row.sentence] = Some(Hypothesis::finished(row.tokens, row.log_probability, config.length_penalty));
            } else {
                row.tokens.push(candidate.token);
                kept_rows.push(old_row);
                still_active.push(row);
            }
        }
        active = still_active;
        if !active.is_empty() {
            select_if_changed(model, &mut state, old_rows, &kept_rows)?;
        }
    }
    finished.into_iter().enumerate().map(|(sentence, hypothesis)| hypothesis.ok_or(DecodingError::DeadEnd { sentence })).collect()
}

fn likeliest(logits: &[f32], row: &Active, config: &DecodingConfig) -> Result<Candidate> {
    let sentence = row.sentence;
    let allowed = Allowed::after(row.tokens.len(), row.limits, config);
    let best = best_tokens(logits, 1, allowed).ok_or(DecodingError::NotADistribution { sentence, position: row.tokens.len() })?;
    best.first().copied().ok_or(DecodingError::DeadEnd { sentence })
}
