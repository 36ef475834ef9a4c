//! The interface through which a search advances a model by one token at a time, and its
//! implementations.

pub(crate) mod columns;
mod ensemble;
mod numbered;
mod special;
pub(crate) mod step;
mod transformer;

pub use ensemble::{Ensemble, EnsembleState};
pub use numbered::NumberedSources;
pub use special::WithSpecialIds;
pub use step::StepModel;

#[cfg(test)]
mod tests {
    use taper_ops::composed::Likeliest;

    use super::*;
    use crate::tokens::OURS;
    use crate::{DecodingError, Result, SpecialIds};

    /// A model that has every method of [`StepModel`]. Its state is the sources that it has read,
    /// and the tokens of its shortlist. A step fails with a message that names the method.
    struct Complete;

    impl StepModel for Complete {
        type State = (Vec<Vec<u32>>, Vec<u32>);

        fn vocabulary_size(&self) -> usize {
            12
        }

        fn longest_output(&self) -> Option<usize> {
            Some(34)
        }

        /// Returns the last token of the source, as a language model does.
        fn first_input(&self, source: &[u32]) -> u32 {
            source.last().copied().unwrap_or(OURS.start())
        }

        fn gains_from_workers(&self) -> bool {
            true
        }

        fn start(&self, sources: &[&[u32]]) -> Result<Self::State> {
            self.start_shortlisted(sources, &[])
        }

        fn shortlists(&self) -> bool {
            true
        }

        fn start_shortlisted(&self, sources: &[&[u32]], tokens: &[u32]) -> Result<Self::State> {
            Ok((sources.iter().map(|source| source.to_vec()).collect(), tokens.to_vec()))
        }

        fn step(
            &self,
            _: &mut Self::State,
            _: &[u32],
            _: impl FnMut(&[f32]) -> Result<()>,
        ) -> Result<()> {
            Err(DecodingError::model("step", "all"))
        }

        fn finds_likeliest(&self) -> bool {
            true
        }

        fn step_likeliest(
            &self,
            _: &mut Self::State,
            _: &[u32],
            count: usize,
            also: &[u32],
        ) -> Result<Vec<Likeliest>> {
            let likeliest = Likeliest { tokens: Vec::new(), also: 0.0, normalizer: count as f64 };
            Ok(vec![likeliest; also.len()])
        }

        fn select(&self, state: &mut Self::State, rows: &[usize]) -> Result<()> {
            state.0 = rows.iter().map(|&row| state.0[row].clone()).collect();
            Ok(())
        }
    }

    /// Checks that `wrapper` passes each method on to [`Complete`]. `source` is passed to the
    /// wrapper, and the model must get `read`.
    fn passes_all_on(
        wrapper: &impl StepModel<State = <Complete as StepModel>::State>,
        source: &[u32],
        read: &[u32],
    ) {
        assert_eq!((wrapper.vocabulary_size(), wrapper.longest_output()), (12, Some(34)));
        assert!(wrapper.gains_from_workers() && wrapper.shortlists() && wrapper.finds_likeliest());
        assert_eq!(wrapper.start(&[source]).unwrap(), (vec![read.to_vec()], Vec::new()));
        let mut state = wrapper.start_shortlisted(&[source, source], &[5, 6]).unwrap();
        assert_eq!(state, (vec![read.to_vec(); 2], vec![5, 6]));
        wrapper.select(&mut state, &[1]).unwrap();
        assert_eq!(state.0, [read]);
        assert_eq!(wrapper.step_likeliest(&mut state, &[7], 3, &[8]).unwrap()[0].normalizer, 3.0);
        assert!(wrapper.step(&mut state, &[7], |_| Ok(())).is_err());
        assert_eq!(wrapper.first_input(&[9, 8]), 8);
    }

    #[test]
    fn wrappers_pass_every_method_on() {
        let special = SpecialIds::new(0, &[], []).with_start(11);
        let imported = WithSpecialIds::new(Complete, special.clone());
        passes_all_on(&imported, &[7, 8], &[7, 8]);
        assert_eq!((imported.special(), imported.first_input(&[])), (&special, 11));
        let read = |numbers: &[usize]| Ok(numbers.iter().map(|&n| vec![n as u32 + 1; 3]).collect());
        passes_all_on(&NumberedSources::new(&Complete, read), &[6, 3], &[7, 7, 7]);
    }
}
