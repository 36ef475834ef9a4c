//! Following one token after another without looking back: what greedy search and sampling share.

use crate::model::step::{Logits, TopK, drop_cancelled, select_if_changed, step_rows, wanted};
use crate::search::candidates::Candidate;
use crate::search::constraints::Constraints;
use crate::{
    Control, DecodingConfig, DecodingError, Hypothesis, OutputLimits, Result, Sentence, SpecialIds,
    StepModel,
};

use std::ops::ControlFlow;

/// An output that is still growing; its place among the active ones is its model row.
pub(crate) struct Growing<'a> {
    /// The index of its sentence.
    index: usize,
    /// Which of the sentence's outputs, counted from 0.
    pub(crate) copy: usize,
    pub(crate) sentence: Sentence<'a>,
    limits: OutputLimits,
    pub(crate) tokens: Vec<u32>,
    log_probability: f64,
    rank: f64,
}

impl Growing<'_> {
    /// What may come next.
    fn constraints<'a>(&self, special: &'a SpecialIds, config: &DecodingConfig) -> Constraints<'a> {
        let (tokens, sentence) = (&self.tokens, &self.sentence);
        Constraints::after(special, tokens.len(), tokens, sentence, self.limits, config)
    }
}

/// A token that has just been added to an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewToken {
    /// The index of the sentence.
    pub sentence: usize,
    /// Which of its outputs, counted from 0.
    pub copy: usize,
    /// The token; [an end](SpecialIds::is_end) ends the output.
    pub token: u32,
}

/// How outputs grow.
pub(crate) struct Growth<F> {
    /// Outputs of each sentence.
    pub(crate) copies: usize,
    /// The likeliest tokens that may come, as many as `choose` needs.
    pub(crate) enough: usize,
    /// Picks a token from a row of logits: `None` where the row is no distribution, and `Some(None)`
    /// where nothing is possible.
    pub(crate) choose: F,
}

/// Grows outputs of each sentence until all have ended, and tells `observe` of each token, which may
/// break an output off. Returns the outputs of each sentence, best score first; of one that `control`
/// cancels those that had ended.
pub(crate) fn decode_stepwise<M: StepModel, F>(
    model: &M,
    sentences: &[Sentence<'_>],
    config: &DecodingConfig,
    growth: Growth<F>,
    control: &dyn Control,
    observe: &mut dyn FnMut(NewToken) -> ControlFlow<()>,
) -> Result<Vec<Vec<Hypothesis>>>
where
    F: Fn(Logits<'_>, &Constraints<'_>, &Growing<'_>) -> Option<Option<Candidate>> + Sync,
{
    let Growth { copies, enough, choose } = growth;
    let mut finished: Vec<Vec<Hypothesis>> = vec![Vec::with_capacity(copies); sentences.len()];
    let begun = wanted(control, sentences.len());
    if begun.is_empty() {
        return Ok(finished);
    }
    let (special, longest) = (model.special(), model.longest_output());
    let mut active: Vec<Growing<'_>> = begun
        .iter()
        .flat_map(|&index| {
            let sentence = sentences[index];
            (0..copies).map(move |copy| Growing {
                index,
                copy,
                sentence,
                limits: sentence.limits(config, longest),
                tokens: Vec::new(),
                log_probability: 0.0,
                rank: 0.0,
            })
        })
        .collect();
    let sources: Vec<&[u32]> = begun.iter().map(|&index| sentences[index].source).collect();
    let mut state = model.start(&sources)?;
    let rows: Vec<usize> = (0..begun.len()).flat_map(|row| vec![row; copies]).collect();
    select_if_changed(model, &mut state, begun.len(), &rows)?;
    loop {
        drop_cancelled(model, &mut state, control, &mut active, |row| (row.index, 1))?;
        if active.is_empty() {
            break;
        }
        let input = |row: &Growing<'_>| match row.tokens.last() {
            Some(&token) => token,
            None => model.first_input(row.sentence.source),
        };
        let inputs: Vec<u32> = active.iter().map(input).collect();
        let top_k =
            TopK::under(model, enough, active.iter().map(|row| row.constraints(special, config)));
        let chosen = step_rows(model, &mut state, &inputs, top_k, |row, logits| {
            next(logits, &active[row], special, config, &choose)
        })?;

        let old_rows = active.len();
        let mut kept_rows = Vec::with_capacity(old_rows);
        let mut still_active = Vec::with_capacity(old_rows);
        for (old_row, (mut row, candidate)) in active.into_iter().zip(chosen).enumerate() {
            let new = NewToken { sentence: row.index, copy: row.copy, token: candidate.token };
            let is_broken_off = observe(new).is_break();
            row.log_probability += candidate.log_probability;
            row.rank += candidate.rank;
            let is_end = special.is_end(candidate.token);
            if is_broken_off && !is_end {
                row.tokens.push(candidate.token);
                finished[row.index].push(Hypothesis::broken_off(
                    row.tokens,
                    row.log_probability,
                    row.rank,
                    config,
                ));
            } else if is_end {
                finished[row.index].push(Hypothesis::finished(
                    row.tokens,
                    row.log_probability,
                    row.rank,
                    row.limits,
                    config,
                ));
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
    for outputs in &mut finished {
        // Equal scores stay in the order in which they ended.
        outputs.sort_by(|a, b| b.score.total_cmp(&a.score));
    }
    Ok(finished)
}

/// What `choose` picks for one row, within what the constraints admit.
fn next(
    logits: Logits<'_>,
    row: &Growing<'_>,
    special: &SpecialIds,
    config: &DecodingConfig,
    choose: &impl Fn(Logits<'_>, &Constraints<'_>, &Growing<'_>) -> Option<Option<Candidate>>,
) -> Result<Candidate> {
    let (sentence, position) = (row.index, row.tokens.len());
    let constraints = row.constraints(special, config);
    choose(logits, &constraints, row)
        .ok_or(DecodingError::NotADistribution { sentence, position })?
        .ok_or(DecodingError::DeadEnd { sentence })
}
