//! Ensembles of several models.

use crate::tokens::OURS;
use crate::{DecodingError, Result, SpecialIds, StepModel};

/// Models with the same vocabulary, combined log-linearly: the probability of a token is
/// proportional to the geometric mean of its probabilities under the models.
///
/// The search gets the mean of the models' logits. In each row, the mean of the logits equals the
/// mean of the log-probabilities plus a constant, which normalisation removes. An ensemble of equal
/// models gives exactly the same results as one of these models.
#[derive(Debug)]
pub struct Ensemble<'m, M> {
    models: &'m [M],
    vocabulary_size: usize,
}

impl<'m, M: StepModel> Ensemble<'m, M> {
    /// Combines `models`. An id must stand for the same token in all of them.
    ///
    /// # Errors
    /// [`DecodingError::Ensemble`] if there are no models, or the sizes of their vocabularies
    /// differ.
    pub fn new(models: &'m [M]) -> Result<Self> {
        let sizes: Vec<usize> = models.iter().map(StepModel::vocabulary_size).collect();
        match sizes.as_slice() {
            [first, rest @ ..] if rest.iter().all(|size| size == first) => {
                Ok(Self { models, vocabulary_size: *first })
            }
            _ => Err(DecodingError::Ensemble { sizes }),
        }
    }
}

/// States of the models of an ensemble.
#[derive(Debug)]
pub struct EnsembleState<S> {
    states: Vec<S>,
    /// Number of columns of a row of logits.
    columns: usize,
}

impl<M: StepModel> StepModel for Ensemble<'_, M> {
    type State = EnsembleState<M::State>;

    fn vocabulary_size(&self) -> usize {
        self.vocabulary_size
    }

    fn special(&self) -> &SpecialIds {
        self.models.first().map_or(&OURS, StepModel::special)
    }

    fn longest_output(&self) -> Option<usize> {
        self.models.iter().filter_map(StepModel::longest_output).min()
    }

    fn first_input(&self, source: &[u32]) -> u32 {
        self.models.first().map_or(OURS.start(), |model| model.first_input(source))
    }

    fn gains_from_workers(&self) -> bool {
        self.models.iter().all(StepModel::gains_from_workers)
    }

    fn start(&self, sources: &[&[u32]]) -> Result<Self::State> {
        let states = self.models.iter().map(|model| model.start(sources)).collect::<Result<_>>()?;
        Ok(EnsembleState { states, columns: self.vocabulary_size })
    }

    fn shortlists(&self) -> bool {
        self.models.iter().all(StepModel::shortlists)
    }

    fn start_shortlisted(&self, sources: &[&[u32]], tokens: &[u32]) -> Result<Self::State> {
        let start = |model: &M| model.start_shortlisted(sources, tokens);
        let states = self.models.iter().map(start).collect::<Result<_>>()?;
        Ok(EnsembleState { states, columns: tokens.len() })
    }

    fn step(
        &self,
        state: &mut Self::State,
        tokens: &[u32],
        mut read: impl FnMut(&[f32]) -> Result<()>,
    ) -> Result<()> {
        // The sum of a few equal `f32` numbers is exact in `f64`, so the mean of equal logits is
        // the same logit.
        let (rows, vocabulary) = (tokens.len(), state.columns);
        let expected = rows * vocabulary;
        let wrong = |got| DecodingError::WrongShape { rows, vocabulary, expected, got };
        let mut sums = vec![0.0_f64; expected];
        for (model, state) in self.models.iter().zip(&mut state.states) {
            let mut done = 0;
            model.step(state, tokens, |logits| {
                let end = done + logits.len();
                let sums = sums.get_mut(done..end).ok_or_else(|| wrong(end))?;
                sums.iter_mut().zip(logits).for_each(|(sum, &logit)| *sum += f64::from(logit));
                done = end;
                Ok(())
            })?;
            if done != expected {
                return Err(wrong(done));
            }
        }
        let count = self.models.len() as f64;
        let mean: Vec<f32> = sums.into_iter().map(|sum| (sum / count) as f32).collect();
        read(&mean)
    }

    fn select(&self, state: &mut Self::State, rows: &[usize]) -> Result<()> {
        let mut states = self.models.iter().zip(&mut state.states);
        states.try_for_each(|(model, state)| model.select(state, rows))
    }
}
