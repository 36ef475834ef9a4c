//! Models with an imported vocabulary, which has its own special ids.

use taper_ops::composed::Likeliest;

use crate::{Result, SpecialIds, StepModel};

/// Wraps a model, and replaces its special ids by those of an imported vocabulary.
#[derive(Debug)]
pub struct WithSpecialIds<M> {
    model: M,
    special: SpecialIds,
}

impl<M> WithSpecialIds<M> {
    /// Wraps `model`, for which a search is to use the special ids `special`.
    ///
    /// If the model's first input is its own start id, the start id of `special` replaces it. So a
    /// language model must not be wrapped: its first input is the last token of the prompt, which
    /// can be a word with the same id.
    pub fn new(model: M, special: SpecialIds) -> Self {
        Self { model, special }
    }
}

impl<M: StepModel> StepModel for WithSpecialIds<M> {
    type State = M::State;

    fn vocabulary_size(&self) -> usize {
        self.model.vocabulary_size()
    }

    fn special(&self) -> &SpecialIds {
        &self.special
    }

    fn longest_output(&self) -> Option<usize> {
        self.model.longest_output()
    }

    fn first_input(&self, source: &[u32]) -> u32 {
        match self.model.first_input(source) {
            first if first == self.model.special().start() => self.special.start(),
            first => first,
        }
    }

    fn gains_from_workers(&self) -> bool {
        self.model.gains_from_workers()
    }

    fn start(&self, sources: &[&[u32]]) -> Result<Self::State> {
        self.model.start(sources)
    }

    fn shortlists(&self) -> bool {
        self.model.shortlists()
    }

    fn start_shortlisted(&self, sources: &[&[u32]], tokens: &[u32]) -> Result<Self::State> {
        self.model.start_shortlisted(sources, tokens)
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
