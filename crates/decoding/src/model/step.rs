//! Interface between a search and a model.

use rayon::prelude::*;
use taper_ops::composed::Likeliest;

use crate::model::columns::{Columns, Logits, union};
use crate::search::constraints::Constraints;
use crate::tokens::OURS;
use crate::{Control, DecodingError, Result, Sentence, SpecialIds};

/// An autoregressive model, in the form in which a search uses it: a state with rows that advance
/// by one token at a time.
///
/// A state has `R` rows. After [`start`](StepModel::start), row `i` belongs to source `i`. Rows
/// must be independent: the predictions of a row must depend only on its source and its own tokens.
pub trait StepModel: Sync {
    /// State that the model keeps between steps: encoded sources, cached keys and values.
    type State;

    /// Returns the size `V` of the target vocabulary, which is the length of a row of logits in
    /// [`step`](StepModel::step).
    fn vocabulary_size(&self) -> usize;

    /// Returns the ids with a special role in the search.
    fn special(&self) -> &SpecialIds {
        &OURS
    }

    /// Returns the largest number of output tokens, without `</s>`, that the model can produce. A
    /// search forces the end of an output that has this length. `None` if there is no limit.
    fn longest_output(&self) -> Option<usize>;

    /// Returns the input of the first step for a row with this source: the token that precedes the
    /// row's output.
    fn first_input(&self, _source: &[u32]) -> u32 {
        self.special().start()
    }

    /// Whether decoding is faster if each thread has its own state than if all threads share the
    /// work of each operation on a single state. This is usually so on a CPU, but not on a device
    /// that runs one operation at a time.
    fn gains_from_workers(&self) -> bool {
        false
    }

    /// Encodes `sources`, none of which is empty, and returns a state with one row for each.
    ///
    /// # Errors
    /// Errors of the model, wrapped by [`DecodingError::model`](crate::DecodingError::model).
    fn start(&self, sources: &[&[u32]]) -> Result<Self::State>;

    /// Whether [`start_shortlisted`](StepModel::start_shortlisted) avoids computing the logits of
    /// all tokens.
    fn shortlists(&self) -> bool {
        false
    }

    /// Starts like [`start`](StepModel::start), for a search that needs only the logits of
    /// `_tokens`. Rows of logits then have one column for each of these tokens, in their order. A
    /// search calls this only if the model [supports it](StepModel::shortlists).
    ///
    /// # Errors
    /// The errors of [`start`](StepModel::start).
    fn start_shortlisted(&self, _sources: &[&[u32]], _tokens: &[u32]) -> Result<Self::State> {
        Err(DecodingError::model("start", "it computes the logits of all tokens"))
    }

    /// Feeds `tokens[r]` to each row `r`, and passes the predictions of the next tokens to `read`,
    /// in one or several blocks of complete rows, in order. `read` only borrows a block. So a model
    /// need not have the predictions of all rows in memory at once, which are the largest data of
    /// decoding.
    ///
    /// # Shapes
    /// `tokens`: `R`. `read` gets `R * V` values in total, row-major. They are log-probabilities up
    /// to a constant per row, so that logits are allowed. `-inf` marks an impossible token. For a
    /// state that [`start_shortlisted`](StepModel::start_shortlisted) made, `V` is the number of
    /// tokens that it was given.
    ///
    /// # Errors
    /// Errors of the model, wrapped by [`DecodingError::model`](crate::DecodingError::model), and
    /// errors of `read`.
    fn step(
        &self,
        state: &mut Self::State,
        tokens: &[u32],
        read: impl FnMut(&[f32]) -> Result<()>,
    ) -> Result<()>;

    /// Whether the model has [`step_likeliest`](StepModel::step_likeliest), which avoids copying
    /// all logits, for example from a GPU.
    fn finds_likeliest(&self) -> bool {
        false
    }

    /// Steps like [`step`](StepModel::step), but returns for each row `r` only the `_count`
    /// likeliest tokens and the token `_also[r]`. A search calls this only if the model [supports
    /// it](StepModel::finds_likeliest).
    ///
    /// # Shapes
    /// `_tokens (R,)`, `_also (R,)` → `R` results.
    ///
    /// # Errors
    /// The errors of [`step`](StepModel::step).
    fn step_likeliest(
        &self,
        _state: &mut Self::State,
        _tokens: &[u32],
        _count: usize,
        _also: &[u32],
    ) -> Result<Vec<Likeliest>> {
        Err(DecodingError::model("step", "it finds no likeliest tokens"))
    }

    /// Selects and reorders rows of the state: row `i` becomes the former row `rows[i]`. A former
    /// row can occur several times (a hypothesis that branches) or not at all (one that ended).
    ///
    /// # Errors
    /// Errors of the model, wrapped by [`DecodingError::model`](crate::DecodingError::model).
    fn select(&self, state: &mut Self::State, rows: &[usize]) -> Result<()>;
}

/// Largest number of likeliest tokens that are found on a device. If more are needed, all logits
/// are copied to main memory instead, because finding one token takes about as many GPU kernels as
/// a layer of the model.
const LARGEST_K: usize = 32;

/// Request for the tokens that a search needs from each row `r`: the `count` likeliest tokens, and
/// `also[r]`.
pub(crate) struct TopK {
    count: usize,
    also: Vec<u32>,
}

impl TopK {
    /// Makes a request for each row: for the `count` likeliest tokens that the row's constraints
    /// admit, and for the token that is needed even if it is unlikely ([`Constraints::asked`]).
    ///
    /// Returns `None` if all logits must be read instead, for one of these reasons:
    /// - the model cannot find likeliest tokens;
    /// - more than [`LARGEST_K`] tokens would be needed;
    /// - `columns` limits the tokens of a sentence;
    /// - a row has a penalty on repeated tokens, or a phrase that its output must contain.
    pub(crate) fn under<'a, M: StepModel>(
        (model, columns): (&M, &Columns<'_>),
        count: usize,
        rows: impl Iterator<Item = Constraints<'a>>,
    ) -> Option<Self> {
        if !model.finds_likeliest() || !columns.are_all() {
            return None;
        }
        let (mut refused, mut also) = (0, Vec::new());
        for constraints in rows {
            refused = constraints.refused().max(refused);
            also.push(constraints.asked());
            if !constraints.repeated.is_empty() || !constraints.needed.is_empty() {
                // Penalised and needed tokens need not be among the likeliest.
                return None;
            }
        }
        let count = count.saturating_add(refused);
        (count <= LARGEST_K).then_some(Self { count, also })
    }

    /// Makes a request for the token `also[r]` of each row `r`; `None` if the model cannot return
    /// single tokens.
    pub(crate) fn single<M: StepModel>(model: &M, also: Vec<u32>) -> Option<Self> {
        model.finds_likeliest().then_some(Self { count: 0, also })
    }
}

/// Starts `model` with the sources of the sentences at the indices `begun`. Returns the state, and
/// the columns of its logits.
pub(crate) fn start<'a, M: StepModel>(
    model: &M,
    sentences: &[Sentence<'a>],
    begun: &[usize],
) -> Result<(M::State, Columns<'a>)> {
    let sources: Vec<&[u32]> = begun.iter().map(|&index| sentences[index].source).collect();
    let vocabulary = model.vocabulary_size();
    let union = match model.shortlists() {
        true => union(begun.iter().map(|&index| sentences[index].candidates), vocabulary),
        false => None,
    };
    let state = match &union {
        Some(union) => model.start_shortlisted(&sources, union)?,
        None => model.start(&sources)?,
    };
    Ok((state, Columns::new(sentences, union.as_deref(), vocabulary)))
}

/// Input of a step of all rows.
pub(crate) struct StepInput<'a, S> {
    /// Last token of each row.
    pub(crate) tokens: &'a [u32],
    /// Request for likeliest tokens; `None` for all logits.
    pub(crate) top_k: Option<TopK>,
    /// Columns of the logits.
    pub(crate) columns: &'a Columns<'a>,
    /// Function from a row to the index of its sentence.
    pub(crate) sentence_of: S,
}

/// Steps all rows, calls `of_row` with the index and the logits of each row, and returns the
/// results of `of_row` in the order of the rows.
pub(crate) fn step_rows<M: StepModel, T: Send, S: Fn(usize) -> usize + Sync>(
    model: &M,
    state: &mut M::State,
    StepInput { tokens, top_k, columns, sentence_of }: StepInput<'_, S>,
    of_row: impl Fn(usize, Logits<'_>) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let (rows, vocabulary) = (tokens.len(), columns.width());
    let wrong =
        |got| DecodingError::WrongShape { rows, vocabulary, expected: rows * vocabulary, got };
    if let Some(TopK { count, also }) = top_k {
        let likeliest = model.step_likeliest(state, tokens, count, &also)?;
        if likeliest.len() != rows {
            return Err(wrong(likeliest.len() * vocabulary));
        }
        let of_row = |(row, likeliest)| of_row(row, Logits::Likeliest(likeliest));
        return likeliest.par_iter().enumerate().map(of_row).collect();
    }
    let mut results = Vec::with_capacity(rows);
    model.step(state, tokens, |logits| {
        let (first, all) = (results.len(), results.len() * vocabulary + logits.len());
        if !logits.len().is_multiple_of(vocabulary) || all > rows * vocabulary {
            return Err(wrong(all));
        }
        let new: Result<Vec<T>> = logits
            .par_chunks(vocabulary)
            .enumerate()
            .map(|(row, logits)| {
                let row = first + row;
                columns.read(sentence_of(row), logits, |logits| of_row(row, logits))
            })
            .collect();
        results.extend(new?);
        Ok(())
    })?;
    if results.len() == rows { Ok(results) } else { Err(wrong(results.len() * vocabulary)) }
}

/// Calls [`Control::between_steps`]. Then returns the indices of the sentences with which a search
/// of `count` sentences begins: those that `control` has not cancelled.
pub(crate) fn wanted(control: &dyn Control, count: usize) -> Vec<usize> {
    control.between_steps();
    (0..count).filter(|&sentence| !control.is_cancelled(sentence)).collect()
}

/// Calls [`Control::between_steps`]. Then removes the entries of cancelled sentences from `active`,
/// and the rows of these entries from the state. `place` returns the index of an entry's sentence,
/// and the number of the entry's rows. The rows of an entry are consecutive, and follow the rows of
/// the entry before it.
pub(crate) fn drop_cancelled<M: StepModel, T>(
    model: &M,
    state: &mut M::State,
    control: &dyn Control,
    active: &mut Vec<T>,
    place: impl Fn(&T) -> (usize, usize),
) -> Result<()> {
    control.between_steps();
    let (mut all, mut kept_rows) = (0, Vec::new());
    active.retain(|entry| {
        let (sentence, rows) = place(entry);
        let is_wanted = !control.is_cancelled(sentence);
        kept_rows.extend((all..all + rows).filter(|_| is_wanted));
        all += rows;
        is_wanted
    });
    if active.is_empty() { Ok(()) } else { select_if_changed(model, state, all, &kept_rows) }
}

/// Keeps only the given `rows` of a state with `old_rows` rows, in the order of `rows`. Does
/// nothing if `rows` are all rows in their present order.
pub(crate) fn select_if_changed<M: StepModel>(
    model: &M,
    state: &mut M::State,
    old_rows: usize,
    rows: &[usize],
) -> Result<()> {
    let unchanged = rows.len() == old_rows && rows.iter().enumerate().all(|(new, &old)| new == old);
    if unchanged { Ok(()) } else { model.select(state, rows) }
}
