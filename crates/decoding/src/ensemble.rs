//! Several models that decide together.

use crate::{DecodingError, Result, StepModel};

/// Models over one vocabulary, combined log-linearly: a token's probability is proportional to the
/// geometric mean of the probabilities that the models give it.
///
/// The mean of the logits is the mean of the log-probabilities up to a constant of the row, which
/// normalising takes away; so equal models decide exactly as one of them does.
#[derive(Debug)]
pub struct Ensemble<'m, M> {
    models: &'m [M],
    vocabulary_size: usize,
}

impl<'m, M: StepModel> Ensemble<'m, M> {
    /// Combines `models`, which must agree on what ids mean.
    ///
    /// # Errors
    /// [`DecodingError::Ensemble`] where there is none, or their vocabularies differ in size.
    pub fn new(models: &'m [M]) -> Result<Self> {
        let sizes: Vec<usize> = models.iter().map(StepModel::vocabulary_size).collect();
        match sizes.as_slice() {
            [first, rest @ ..] if rest.iter().all(|size| size == first) => Ok(Self { models, vocabulary_size: *first }),
            _ => Err(DecodingError::Ensemble { sizes }),
        }
    }
}

impl<M: StepModel> StepModel for Ensemble<'_, M> {
    type State = Vec<M::State>;

    fn vocabulary_size(&self) -> usize {
        self.vocabulary_size
    }

    fn start(&self, sources: &[&[u32]]) -> Result<Self::State> {
        self.models.iter().map(|model| model.start(sources)).collect()
    }

    fn step<T>(&self, state: &mut Self::State, tokens: &[u32], read: impl FnOnce(&[f32]) -> Result<T>) -> Result<T> {
        let mut mean: Vec<f32> = Vec::new();
        for (model, state) in self.models.iter().zip(state) {
            model.step(state, tokens, |logits| {
                mean.resize(logits.len(), 0.0);
                mean.iter_mut().zip(logits).for_each(|(sum, logit)| *sum += logit);
                Ok(())
            })?;
        }
        let count = self.models.len() as f32;
        mean.iter_mut().for_each(|logit| *logit /= count);
        read(&mean)
    }

    fn select(&self, state: &mut Self::State, rows: &[usize]) -> Result<()> {
        self.models.iter().zip(state).try_for_each(|(model, state)| model.select(state, rows))
    }
}
