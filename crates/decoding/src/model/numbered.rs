//! Sources that are too large to be passed to a search, such as images, and are replaced by their
//! numbers.

use std::fmt;

use crate::{Result, SpecialIds, StepModel};

/// A model whose sources are passed to the search as numbers. The first id of a source is its
/// number; when a batch begins, `read` returns the actual sources for the numbers in the batch.
///
/// A search sees each source as two ids, the number and `</s>`. So it computes length limits and
/// batches as if each source had two ids.
pub struct NumberedSources<'m, M, F> {
    model: &'m M,
    read: F,
}

impl<M: fmt::Debug, F> fmt::Debug for NumberedSources<'_, M, F> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("NumberedSources").field("model", self.model).finish_non_exhaustive()
    }
}

impl<'m, M, F> NumberedSources<'m, M, F>
where
    M: StepModel,
    F: Fn(&[usize]) -> Result<Vec<Vec<u32>>> + Sync,
{
    /// Wraps a model; `read` returns the actual sources for a list of numbers, in the order of the
    /// list.
    pub fn new(model: &'m M, read: F) -> Self {
        Self { model, read }
    }
}

impl<M, F> StepModel for NumberedSources<'_, M, F>
where
    M: StepModel,
    F: Fn(&[usize]) -> Result<Vec<Vec<u32>>> + Sync,
{
    type State = M::State;

    fn vocabulary_size(&self) -> usize {
        self.model.vocabulary_size()
    }

    fn special(&self) -> &SpecialIds {
        self.model.special()
    }

    fn longest_output(&self) -> Option<usize> {
        self.model.longest_output()
    }

    fn gains_from_workers(&self) -> bool {
        self.model.gains_from_workers()
    }

    fn start(&self, sources: &[&[u32]]) -> Result<Self::State> {
        let number = |source: &&[u32]| source.first().map_or(0, |&number| number as usize);
        let numbers: Vec<usize> = sources.iter().map(number).collect();
        let sources = (self.read)(&numbers)?;
        self.model.start(&sources.iter().map(Vec::as_slice).collect::<Vec<_>>())
    }

    fn step(
        &self,
        state: &mut Self::State,
        tokens: &[u32],
        read: impl FnMut(&[f32]) -> Result<()>,
    ) -> Result<()> {
        self.model.step(state, tokens, read)
    }

    fn select(&self, state: &mut Self::State, rows: &[usize]) -> Result<()> {
        self.model.select(state, rows)
    }
}
