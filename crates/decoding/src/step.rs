//! What a search asks of a model.

use crate::Result;

/// An autoregressive model seen from a search: rows that advance by one token at a time.
///
/// A state holds `R` rows; right after [`start`](StepModel::start) row `i` belongs to source `i`.
/// Rows must be independent: what a row predicts may depend on its source and its own tokens only.
pub trait StepModel {
    /// What the model keeps between steps: encoded sources, cached keys and values.
    type State;

    /// The number of target tokens `V`, the length of one row of [`step`](StepModel::step).
    fn vocabulary_size(&self) -> usize;

    /// Encodes `sources`, none of them empty, into a state with one row per source.
    ///
    /// # Errors
    /// Whatever the model reports, as [`DecodingError::model`](crate::DecodingError::model).
    fn start(&self, sources: &[&[u32]]) -> Result<Self::State>;

    /// Feeds `tokens[r]` to each row `r`, and gives `read` the prediction of the token that follows it. It is
    /// lent rather than returned since it is the largest thing there is at decoding, and a model may
    /// have it in a form that would have to be copied.
    ///
    /// # Shapes
    /// `tokens`: `R`; `read` gets `R * V` values, row-major: log-probabilities up to a constant per
    /// row, so logits will do. `-inf` marks an impossible token.
    ///
    /// # Errors
    /// Whatever the model reports, as [`DecodingError::model`](crate::DecodingError::model), and what `read` returns.
    fn step<T>(&self, state: &mut Self::State, tokens: &[u32], read: impl FnOnce(&[f32]) -> Result<T>) -> Result<T>;

    /// Makes row `i` of the state what row `rows[i]` was. Rows may repeat (a hypothesis that
    /// branches) and be left out (one that ended).
    ///
    /// # Errors
    /// Whatever the model reports, as [`DecodingError::model`](crate::DecodingError::model).
    fn select(&self, state: &mut Self::State, rows: &[usize]) -> Result<()>;
}

/// Steps, and checks that the model answered with one row of `V` values per token.
pub(crate) fn checked_step<M: StepModel, T>(
    model: &M,
    state: &mut M::State,
    tokens: &[u32],
    read: impl FnOnce(&[f32]) -> Result<T>,
) -> Result<T> {
    let (rows, vocabulary) = (tokens.len(), model.vocabulary_size());
    model.step(state, tokens, |logits| match rows * vocabulary {
        expected if logits.len() != expected => Err(crate::DecodingError::WrongShape { rows, vocabulary, expected, got: logits.len() }),
        _ => read(logits),
    })
}

/// Selects `rows` unless that would leave the state of `old_rows` rows as it is.
pub(crate) fn select_if_changed<M: StepModel>(model: &M, state: &mut M::State, old_rows: usize, rows: &[usize]) -> Result<()> {
    let unchanged = rows.len() == old_rows && rows.iter().enumerate().all(|(new, &old)| new == old);
    if unchanged { Ok(()) } else { model.select(state, rows) }
}
