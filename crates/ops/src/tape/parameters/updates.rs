//! Buffers that optimizers need for a range of the flat layout (all parameters one after the
//! other): the gradient with zeros for frozen parameters, the mask for weight decay, and factors of
//! the learning rate.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use candle_core::{Result, Tensor};

use super::{Parameter, ParameterStore};

/// Multipliers of the elements in a range of the flat layout.
#[derive(Debug, Clone)]
pub enum ElementFactors {
    /// One factor for all elements.
    Same(f64),
    /// A factor for each element, f32.
    Each(Tensor),
}

impl ElementFactors {
    /// Multiplies the elements of `x` by their factors.
    ///
    /// # Errors
    /// If the number of elements of `x` is not the number of factors, or the device has no memory
    /// left.
    pub fn times(&self, x: &Tensor) -> Result<Tensor> {
        match self {
            Self::Same(1.0) => Ok(x.clone()),
            Self::Same(factor) => x * *factor,
            Self::Each(factors) => x * factors,
        }
    }
}

/// Bits of a factor, and the number of consecutive elements that have this factor.
type Run = (u32, usize);

/// The tensor of factors that was made last, with the runs of equal factors in it.
#[derive(Debug, Default)]
pub(super) struct Latest(Mutex<Option<(Vec<Run>, Tensor)>>);

impl ParameterStore {
    /// Replaces the elements of frozen parameters in `gradient` by zeros, so that they do not
    /// contribute to its norm. `gradient` is for `range` of the flat layout.
    ///
    /// # Shapes
    /// `gradient (range.len(),)` → `(range.len(),)`, f32.
    ///
    /// # Errors
    /// If the device has no memory left.
    pub fn without_frozen(&self, range: &Range<usize>, gradient: Tensor) -> Result<Tensor> {
        self.outside_frozen(range, gradient, |part, _| part.zeros_like())
    }

    /// Replaces the elements of frozen parameters in `changed`, the optimizer state after a step,
    /// by those in `former`, the state before it. Both are for `range` of the flat layout.
    ///
    /// # Shapes
    /// `changed`, `former (range.len(),)` → `(range.len(),)`, f32.
    ///
    /// # Errors
    /// If the device has no memory left.
    pub fn kept_where_frozen(
        &self,
        range: &Range<usize>,
        changed: Tensor,
        former: &Tensor,
    ) -> Result<Tensor> {
        self.outside_frozen(range, changed, |part, start| former.narrow(0, start, part.dim(0)?))
    }

    /// Replaces the elements of each frozen parameter in `values` by the result of `frozen`.
    /// `values` are for `range` of the flat layout. The function `frozen` gets the elements of one
    /// parameter, and the index in `values` at which they begin.
    fn outside_frozen(
        &self,
        range: &Range<usize>,
        values: Tensor,
        frozen: impl Fn(&Tensor, usize) -> Result<Tensor>,
    ) -> Result<Tensor> {
        if !self.parameters.iter().any(Parameter::is_frozen) {
            return Ok(values);
        }
        let parts = self.within(range).map(|(parameter, within)| {
            let start = parameter.offset + within.start - range.start;
            let part = values.narrow(0, start, within.len())?;
            if parameter.is_frozen() { frozen(&part, start) } else { Ok(part) }
        });
        match parts.collect::<Result<Vec<_>>>()?.as_slice() {
            [] => Ok(values),
            parts => Tensor::cat(parts, 0),
        }
    }

    /// Returns the mask for weight decay: 1 for each element of a matrix in `range` of the flat
    /// layout, and 0 for all others. The latest tensor is cached, so that repeated calls with the
    /// same range, one in each training step, make it only once.
    ///
    /// # Errors
    /// If the device has no memory left.
    pub fn matrices(&self, range: Range<usize>) -> Result<ElementFactors> {
        self.factors(range, &self.matrices, |one| if one.is_matrix() { 1.0 } else { 0.0 })
    }

    /// Returns the factor of the learning rate for each element in `range` of the flat layout. The
    /// latest tensor is cached, as for [`ParameterStore::matrices`].
    ///
    /// # Errors
    /// If the device has no memory left.
    pub fn rates(&self, range: Range<usize>) -> Result<ElementFactors> {
        self.factors(range, &self.rates, |parameter| parameter.rate() as f32)
    }

    fn factors(
        &self,
        range: Range<usize>,
        latest: &Latest,
        factor: impl Fn(&Parameter) -> f32,
    ) -> Result<ElementFactors> {
        let mut runs: Vec<Run> = Vec::new();
        for (parameter, within) in self.within(&range) {
            let bits = factor(parameter).to_bits();
            match runs.last_mut() {
                Some((same, count)) if *same == bits => *count += within.len(),
                _ => runs.push((bits, within.len())),
            }
        }
        // A tensor is made only if factors differ. In a step of Muon they are always equal, because
        // it asks for the factors of one parameter at a time.
        match runs[..] {
            [] => return Ok(ElementFactors::Same(1.0)),
            [(bits, _)] => return Ok(ElementFactors::Same(f64::from(f32::from_bits(bits)))),
            _ => {}
        }
        let mut latest = latest.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, factors)) = latest.as_ref().filter(|(of, _)| *of == runs) {
            return Ok(ElementFactors::Each(factors.clone()));
        }
        let elements = |&(bits, count): &Run| std::iter::repeat_n(f32::from_bits(bits), count);
        let values: Vec<f32> = runs.iter().flat_map(elements).collect();
        let factors = Tensor::from_vec(values, range.len(), &self.device)?;
        *latest = Some((runs, factors.clone()));
        Ok(ElementFactors::Each(factors))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Device;

    #[test]
    fn tensors_of_factors_are_made_once() -> Result<()> {
        let mut store = ParameterStore::new(&Device::Cpu);
        for (name, shape) in [("first", &[2, 2][..]), ("second", &[1, 2]), ("bias", &[3])] {
            store.add(name, shape, vec![0.0; shape.iter().product()])?;
        }
        let each = |factors: ElementFactors| match factors {
            ElementFactors::Each(factors) => factors,
            ElementFactors::Same(factor) => panic!("all are {factor}"),
        };
        let same = |factors: ElementFactors| matches!(factors, ElementFactors::Same(_));
        let whole = each(store.matrices(1..8)?);
        assert_eq!(whole.to_vec1::<f32>()?, [1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0]);
        // Ranges within parameters of one kind need no tensor.
        for range in [0..4, 4..6, 0..6, 6..9, 3..3] {
            assert!(same(store.matrices(range.clone())?) && same(store.rates(range)?));
        }
        assert_eq!(each(store.matrices(1..8)?).id(), whole.id());

        store.parameters()[1].set_rate(0.5);
        let rates = each(store.rates(3..8)?);
        assert_eq!(rates.to_vec1::<f32>()?, [1.0, 0.5, 0.5, 1.0, 1.0]);
        assert_eq!(each(store.rates(3..8)?).id(), rates.id());
        store.parameters()[2].set_rate(2.0);
        assert_eq!(each(store.rates(3..8)?).to_vec1::<f32>()?, [1.0, 0.5, 0.5, 2.0, 2.0]);
        let x = Tensor::new(&[3f32, 5.0], &Device::Cpu)?;
        assert_eq!(store.rates(4..6)?.times(&x)?.to_vec1::<f32>()?, [1.5, 2.5]);
        assert_eq!(store.rates(5..7)?.times(&x)?.to_vec1::<f32>()?, [1.5, 10.0]);
        Ok(())
    }
}
