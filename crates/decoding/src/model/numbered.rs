//! Sources that are too large to be passed to a search, such as images, and are replaced by numbers
//! (their indices).

use std::fmt;

use taper_ops::composed::Likeliest;

use crate::{Result, SpecialIds, StepModel};

/// A model whose sources are passed to the search as numbers. The first id of a source is its
/// number; when a batch begins, `read` returns the actual sources for the numbers in the batch.
///
/// A search sees each source as two ids, the number and `</s>`. So it computes length limits and
/// batches as if each source had two ids. [`first_input`](StepModel::first_input) of the model must
/// not depend on the source, because it gets the number instead of the actual source.
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

    /// Returns the actual sources for numbered ones.
    fn sources(&self, numbered: &[&[u32]]) -> Result<Vec<Vec<u32>>> {
        let number = |source: &&[u32]| source.first().map_or(0, |&number| number as usize);
        (self.read)(&numbered.iter().map(number).collect::<Vec<_>>())
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

    fn first_input(&self, source: &[u32]) -> u32 {
        self.model.first_input(source)
    }

    fn gains_from_workers(&self) -> bool {
        self.model.gains_from_workers()
    }

    fn start(&self, sources: &[&[u32]]) -> Result<Self::State> {
        let sources = self.sources(sources)?;
        self.model.start(&sources.iter().map(Vec::as_slice).collect::<Vec<_>>())
    }

    fn shortlists(&self) -> bool {
        self.model.shortlists()
    }

    fn start_shortlisted(&self, sources: &[&[u32]], tokens: &[u32]) -> Result<Self::State> {
        let sources = self.sources(sources)?;
        let sources: Vec<&[u32]> = sources.iter().map(Vec::as_slice).collect();
        self.model.start_shortlisted(&sources, tokens)
    }

    fn step(
        &self,
        state: &mut Self::State,
        tokens: &[u32],
        read: impl FnMut(&[f32]) -> Result<()>,
    ) -> Result<()> {
        self.model.step(state, tokens, read)
    }

    fn finds_likeliest(&self) -> bool {
        self.model.finds_likeliest()
    }

    fn step_likeliest(
        &self,
        state: &mut Self::State,
        tokens: &[u32],
        count: usize,
        also: &[u32],
    ) -> Result<Vec<Likeliest>> {
        self.model.step_likeliest(state, tokens, count, also)
    }

    fn select(&self, state: &mut Self::State, rows: &[usize]) -> Result<()> {
        self.model.select(state, rows)
    }
}
