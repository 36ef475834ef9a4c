//! Decoding token by token, in which a chosen token is never revised. Greedy search and sampling
//! use it.

use crate::model::columns::{Columns, Logits};
use crate::model::step::{
    StepInput, TopK, drop_cancelled, select_if_changed, start, step_rows, wanted,
};
use crate::search::candidates::Candidate;
use crate::search::constraints::{Constraints, looks_back};
use crate::search::hypothesis::Path;
use crate::{
    Control, DecodingConfig, DecodingError, Hypothesis, OutputLimits, Result, Sentence, SpecialIds,
    StepModel,
};

use std::borrow::Cow;
use std::ops::ControlFlow;

/// Whether an output is a translation of its source or continues it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// A translation, which is a complete sentence: `</s>` is forced at the length limit.
    Translation,
    /// A continuation of the source: it is cut off at the length limit. The ban on repeated n-grams
    /// (`no_repeat_ngram`) also applies to the n-grams of the source. By the rules of the library
    /// Transformers, the repetition penalty also applies to the source's tokens.
    Continuation,
}

/// An unfinished output. Its index among the unfinished outputs is also the index of its row in the
/// model's state.
pub(crate) struct Growing<'a> {
    /// Index of the sentence.
    index: usize,
    /// Index of the output among the outputs of its sentence.
    pub(crate) copy: usize,
    pub(crate) sentence: Sentence<'a>,
    output: Output,
    limits: OutputLimits,
    path: Path,
}

impl<'s> Growing<'s> {
    fn new(
        index: usize,
        copy: usize,
        sentence: Sentence<'s>,
        output: Output,
        limits: OutputLimits,
    ) -> Self {
        Self { index, copy, sentence, output, limits, path: Path::default() }
    }

    /// Returns the tokens so far.
    pub(crate) fn tokens(&self) -> &[u32] {
        &self.path.tokens
    }

    /// Returns the constraints on the next token.
    fn constraints<'a>(&self, special: &'a SpecialIds, config: &DecodingConfig) -> Constraints<'a> {
        let tokens = self.tokens();
        let history = match self.output {
            Output::Continuation if looks_back(config) => {
                Cow::Owned([self.sentence.source, tokens].concat())
            }
            _ => Cow::Borrowed(tokens),
        };
        let (sentence, limits) = (&self.sentence, self.limits);
        Constraints::after(special, tokens.len(), &history, sentence, limits, config)
    }

    /// Adds a token, and returns whether the output ends with it.
    fn push(&mut self, candidate: Candidate, special: &SpecialIds) -> bool {
        let path = &mut self.path;
        path.log_probability += candidate.log_probability;
        path.rank += candidate.rank;
        path.token_log_probabilities.push(candidate.log_probability);
        let is_continuation = self.output == Output::Continuation;
        let is_end = special.is_end(candidate.token);
        if is_end && !(is_continuation && special.is_text_end(candidate.token)) {
            return true;
        }
        path.tokens.push(candidate.token);
        is_end || (is_continuation && path.tokens.len() >= self.limits.max_length)
    }

    /// Returns the finished output for each of `settings`.
    fn finish(self, settings: &[DecodingConfig]) -> Vec<Hypothesis> {
        let limits = self.limits;
        let path = self.path.stopped(limits, &settings[0]);
        settings.iter().map(|config| Hypothesis::from_path(path.clone(), limits, config)).collect()
    }
}

/// A token that has been added to an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewToken {
    /// Index of the sentence.
    pub sentence: usize,
    /// Index of the output among the outputs of its sentence.
    pub copy: usize,
    /// The token.
    pub token: u32,
    /// Whether the output ends here: with an end token, or at the length limit.
    pub is_last: bool,
}

/// How the outputs of sentences are extended.
pub(crate) struct Growth<F> {
    /// Number of outputs for each sentence.
    pub(crate) copies: usize,
    /// Number of tokens among which `choose` chooses: it needs only this many of the likeliest
    /// allowed tokens.
    pub(crate) enough: usize,
    /// Function that chooses a token from a row of logits; it returns `None` if the row is not a
    /// distribution, and `Some(None)` if no token is possible.
    pub(crate) choose: F,
}

/// Extends the outputs of each sentence until all of them have ended. At each position,
/// `growth.choose` chooses a token from a row of logits. Then `observe` is called with the token,
/// and can stop the output. Outputs that are cut off at the length limit or stopped have no `</s>`.
///
/// There must be at least one element in `settings`, and the elements must differ only in
/// [`LengthSettings`](crate::LengthSettings), on which the chosen tokens do not depend. The result
/// has, for each sentence and each of the `settings`, the list of outputs, best score first. If
/// `control` cancels a sentence, the lists have only the outputs that had ended before.
pub(crate) fn decode_stepwise<M: StepModel, F>(
    model: &M,
    (sentences, output): (&[Sentence<'_>], Output),
    settings: &[DecodingConfig],
    growth: Growth<F>,
    control: &dyn Control,
    observe: &mut dyn FnMut(NewToken) -> ControlFlow<()>,
) -> Result<Vec<Vec<Vec<Hypothesis>>>>
where
    F: Fn(Logits<'_>, &Constraints<'_>, &Growing<'_>) -> Option<Option<Candidate>> + Sync,
{
    let Growth { copies, enough, choose } = growth;
    let mut finished: Vec<Vec<Vec<Hypothesis>>> =
        vec![vec![Vec::new(); settings.len()]; sentences.len()];
    let begun = wanted(control, sentences.len());
    if begun.is_empty() {
        return Ok(finished);
    }
    let config = &settings[0];
    let (special, longest) = (model.special(), model.longest_output());
    let begin = |&index: &usize| {
        let sentence = sentences[index];
        let limits = sentence.limits(config, longest);
        let copy = move |copy| Growing::new(index, copy, sentence, output, limits);
        (0..copies).map(copy)
    };
    let mut active: Vec<Growing<'_>> = begun.iter().flat_map(begin).collect();
    let (mut state, columns) = start(model, sentences, &begun)?;
    let rows: Vec<usize> = (0..begun.len()).flat_map(|row| vec![row; copies]).collect();
    select_if_changed(model, &mut state, begun.len(), &rows)?;
    loop {
        drop_cancelled(model, &mut state, control, &mut active, |row| (row.index, 1))?;
        if active.is_empty() {
            break;
        }
        let chosen =
            next_tokens(model, (&mut state, &columns), &active, config, (enough, &choose))?;

        let old_rows = active.len();
        let (mut kept_rows, mut still_active) = (Vec::new(), Vec::new());
        for (old_row, (mut row, candidate)) in active.into_iter().zip(chosen).enumerate() {
            let (sentence, copy, token) = (row.index, row.copy, candidate.token);
            let is_last = row.push(candidate, special);
            let is_broken_off = observe(NewToken { sentence, copy, token, is_last }).is_break();
            if is_last || is_broken_off {
                for (list, mut hypothesis) in
                    finished[sentence].iter_mut().zip(row.finish(settings))
                {
                    hypothesis.truncated &= !special.is_text_end(token);
                    list.push(hypothesis);
                }
            } else {
                kept_rows.push(old_row);
                still_active.push(row);
            }
        }
        active = still_active;
        if !active.is_empty() {
            select_if_changed(model, &mut state, old_rows, &kept_rows)?;
        }
    }
    // The sort is stable: outputs with equal scores stay in the order in which they ended.
    let lists = finished.iter_mut().flatten();
    lists.for_each(|outputs| outputs.sort_by(|a, b| b.score.total_cmp(&a.score)));
    Ok(finished)
}

/// Steps the model, and chooses a token for each row with the function `choose`, which needs only
/// the `enough` likeliest allowed tokens of the row.
fn next_tokens<M: StepModel, F>(
    model: &M,
    (state, columns): (&mut M::State, &Columns<'_>),
    active: &[Growing<'_>],
    config: &DecodingConfig,
    (enough, choose): (usize, &F),
) -> Result<Vec<Candidate>>
where
    F: Fn(Logits<'_>, &Constraints<'_>, &Growing<'_>) -> Option<Option<Candidate>> + Sync,
{
    let special = model.special();
    let input = |row: &Growing<'_>| match row.tokens().last() {
        Some(&token) => token,
        None => model.first_input(row.sentence.source),
    };
    let inputs: Vec<u32> = active.iter().map(input).collect();
    let constraints = |row: &Growing<'_>| row.constraints(special, config);
    let top_k = TopK::under((model, columns), enough, active.iter().map(constraints));
    let sentence_of = |row: usize| active[row].index;
    let input = StepInput { tokens: &inputs, top_k, columns, sentence_of };
    step_rows(model, state, input, |row, logits| {
        let row = &active[row];
        let (sentence, position) = (row.index, row.tokens().len());
        choose(logits, &constraints(row), row)
            .ok_or(DecodingError::NotADistribution { sentence, position })?
            .ok_or(DecodingError::DeadEnd { sentence })
    })
}
