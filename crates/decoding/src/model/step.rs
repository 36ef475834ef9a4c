//! Interface between a search and a model.

use rayon::prelude::*;
use taper_ops::composed::Likeliest;

use crate::search::constraints::Constraints;
use crate::tokens::OURS;
use crate::{Control, DecodingError, Result, SpecialIds};

/// An autoregressive model, as a search sees it: rows that advance by one token at a time.
///
/// A state holds `R` rows. Right after [`start`](StepModel::start), row `i` belongs to source `i`.
/// Rows must be independent: the predictions of a row may depend only on its source and its own
/// tokens.
pub trait StepModel: Sync {
    /// State that the model keeps between steps: encoded sources, cached keys and values.
    type State;

    /// Size `V` of the target vocabulary: the length of one row of logits in
    /// [`step`](StepModel::step).
    fn vocabulary_size(&self) -> usize;

    /// Ids with a special role in the search.
    fn special(&self) -> &SpecialIds {
        &OURS
    }

    /// Largest number of output tokens of a row, without `</s>`; `None` for no limit. A search
    /// forces the end at this length.
    fn longest_output(&self) -> Option<usize>;

    /// Input of the first step for a row with this source: the token that precedes the row's
    /// output.
    fn first_input(&self, _source: &[u32]) -> u32 {
        self.special().start()
    }

    /// True if several threads, each with a state of its own, are faster than a single state whose
    /// every operation is divided among threads. This is usually true on a CPU, but not on a device
    /// that runs one operation at a time.
    fn gains_from_workers(&self) -> bool {
        false
    }

    /// Encodes `sources`, none of them empty, into a state with one row per source.
    ///
    /// # Errors
    /// Errors of the model, as [`DecodingError::model`](crate::DecodingError::model).
    fn start(&self, sources: &[&[u32]]) -> Result<Self::State>;

    /// Feeds `tokens[r]` to each row `r`, and passes the predictions of the following tokens to
    /// `read`, in one or several blocks of whole rows, in order. `read` only borrows a block: all
    /// predictions together are the largest data of decoding, and a model need not hold them all at
    /// once.
    ///
    /// # Shapes
    /// `tokens`: `R`. `read` gets `R * V` values in total, row-major. They are log-probabilities up
    /// to a constant per row, so that logits are allowed. `-inf` marks an impossible token.
    ///
    /// # Errors
    /// Errors of the model, as [`DecodingError::model`](crate::DecodingError::model), and errors of
    /// `read`.
    fn step(
        &self,
        state: &mut Self::State,
        tokens: &[u32],
        read: impl FnMut(&[f32]) -> Result<()>,
    ) -> Result<()>;

    /// True if [`step_likeliest`](StepModel::step_likeliest) avoids copying all logits, for example
    /// from a GPU.
    fn finds_likeliest(&self) -> bool {
        false
    }

    /// Steps like [`step`](StepModel::step), for a search that needs from each row `r` only the
    /// `_count` likeliest tokens and the token `_also[r]`. A search calls this only if the model
    /// [supports it](StepModel::finds_likeliest).
    ///
    /// # Shapes
    /// `_tokens`, `_also` and the result: `R`.
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

    /// Reorders the state: row `i` becomes the former row `rows[i]`. Rows may be repeated (a
    /// hypothesis that branches) and omitted (one that ended).
    ///
    /// # Errors
    /// Errors of the model, as [`DecodingError::model`](crate::DecodingError::model).
    fn select(&self, state: &mut Self::State, rows: &[usize]) -> Result<()>;
}

/// Largest k of top-k on a device. Each of the k tokens takes about as many GPU kernels as a layer,
/// so for a larger k all logits are copied to the host instead.
const LARGEST_K: usize = 32;

/// Tokens that a search needs from each row `r`: the `count` likeliest ones, and `also[r]`.
pub(crate) struct TopK {
    count: usize,
    also: Vec<u32>,
}

impl TopK {
    /// Makes the request for the `count` likeliest tokens of each row that the row's constraints
    /// admit, and for the token that the constraints ask for. `None` if the model cannot find
    /// likeliest tokens, or if there would be too many of them.
    pub(crate) fn under<'a, M: StepModel>(
        model: &M,
        count: usize,
        rows: impl Iterator<Item = Constraints<'a>>,
    ) -> Option<Self> {
        if !model.finds_likeliest() {
            return None;
        }
        let (mut refused, mut also) = (0, Vec::new());
        for constraints in rows {
            refused = constraints.refused().max(refused);
            also.push(constraints.asked());
            if !constraints.repeated.is_empty() || !constraints.needed.is_empty() {
                return None; // Penalised and needed tokens may be anywhere in the row.
            }
        }
        let count = count.saturating_add(refused);
        (count <= LARGEST_K).then_some(Self { count, also })
    }

    /// Makes the request for one token of each row.
    pub(crate) fn single<M: StepModel>(model: &M, also: Vec<u32>) -> Option<Self> {
        model.finds_likeliest().then_some(Self { count: 0, also })
    }
}

/// Logits of a row, in the form in which a search gets them.
#[derive(Clone, Copy)]
pub(crate) enum Logits<'a> {
    /// The logits of all `V` tokens.
    All(&'a [f32]),
    /// Only the logits that a [`TopK`] requested.
    Likeliest(&'a Likeliest),
}

/// Steps all rows, and calls `of_row` with the index and the logits of each row; returns its
/// results.
pub(crate) fn step_rows<M: StepModel, T: Send>(
    model: &M,
    state: &mut M::State,
    tokens: &[u32],
    top_k: Option<TopK>,
    of_row: impl Fn(usize, Logits<'_>) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let (rows, vocabulary) = (tokens.len(), model.vocabulary_size());
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
            .map(|(row, logits)| of_row(first + row, Logits::All(logits)))
            .collect();
        results.extend(new?);
        Ok(())
    })?;
    if results.len() == rows { Ok(results) } else { Err(wrong(results.len() * vocabulary)) }
}

/// Returns the indices of the sentences, out of `count`, that are still wanted when a search
/// begins.
pub(crate) fn wanted(control: &dyn Control, count: usize) -> Vec<usize> {
    control.between_steps();
    (0..count).filter(|&sentence| !control.is_cancelled(sentence)).collect()
}

/// Lets the control do other work, and then removes cancelled entries from `active`, and their rows
/// from the state. `place` returns the sentence of an entry and the number of its rows; the rows of
/// an entry are consecutive.
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

/// Keeps the given `rows` of a state with `old_rows` rows; does nothing if these are all rows in
/// their order.
pub(crate) fn select_if_changed<M: StepModel>(
    model: &M,
    state: &mut M::State,
    old_rows: usize,
    rows: &[usize],
) -> Result<()> {
    let unchanged = rows.len() == old_rows && rows.iter().enumerate().all(|(new, &old)| new == old);
    if unchanged { Ok(()) } else { model.select(state, rows) }
}
