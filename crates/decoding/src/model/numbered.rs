//! Sources that are too large to be passed around, such as images: a search is given their numbers.

use std::fmt;

use crate::{Result, SpecialIds, StepModel};

/// A model whose sources are known by their numbers: the first id of a source is the number of what
/// `read` gives for it, when its batch is begun.
///
/// What a search knows of a source, from its length to its place in a batch, is then that of the
/// number: two ids, `</s>` counted.
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
    /// A model whose sources `read` gives by their numbers, in their order.
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

    fn steps_apart(&self) -> bool {
        self.model.steps_apart()
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
