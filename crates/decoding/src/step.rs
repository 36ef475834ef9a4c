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

    /// Feeds `tokens[r]` to each row `r` and predicts the token that follows it.
    ///
    /// # Shapes
    /// `tokens`: `R`; returns `R * V` values, row-major: log-probabilities up to a constant per
    /// row, so logits will do. `-inf` marks an impossible token.
    ///
    /// # Errors
    /// Whatever the model reports, as [`DecodingError::model`](crate::DecodingError::model).
    fn step(&self, state: &mut Self::State, tokens: &[u32]) -> Result<Vec<f32>>;

    /// Makes row `i` of the state what row `rows[i]` was. Rows may repeat (a hypothesis that
    /// branches) and be left out (one that ended).
    ///
    /// # Errors
    /// Whatever the model reports, as [`DecodingError::model`](crate::DecodingError::model).
    fn select(&self, state: &mut Self::State, rows: &[usize]) -> Result<()>;
}

/// Steps and checks that the model answered with one row of `V` values per token.
pub(crate) fn checked_step<M: StepModel>(model: &M, state: &mut M::State, tokens: &[u32]) -> Result<Vec<f32>> {
    let logits = model.step(state, tokens)?;
    let expected = tokens.len() * model.vocabulary_size();
    if logits.len() != expected {
        return Err(crate::DecodingError::WrongShape {
            rows: tokens.len(),
            vocabulary: model.vocabulary_size(),
            expected,
            got: logits.len(),
        });
    }
    Ok(logits)
}

/// Selects `rows` unless that would leave the state of `old_rows` rows as it is.
pub(crate) fn select_if_changed<M: StepModel>(model: &M, state: &mut M::State, old_rows: usize, rows: &[usize]) -> Result<()> {
    let unchanged = rows.len() == old_rows && rows.iter().enumerate().all(|(new, &old)| new == old);
    if unchanged { Ok(()) } else { model.select(state, rows) }
}
