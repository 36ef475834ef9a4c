//! Buffers that optimizers need for ranges of the flat layout (all parameters one after the other):
//! gradients without those of frozen parameters, the mask for weight decay, and factors of the
//! learning rate.

use std::ops::Range;
use std::sync::PoisonError;

use candle_core::{Result, Tensor};

use super::{Parameter, ParameterStore};

impl ParameterStore {
    /// Returns `gradient`, which is for `range` of the flat layout, with zeros for frozen
    /// parameters, so that they do not contribute to the norm of the gradient.
    ///
    /// # Shapes
    /// `gradient (range.len(),)` → `(range.len(),)`, f32.
    ///
    /// # Errors
    /// If the device has no memory left.
    pub fn without_frozen(&self, range: &Range<usize>, gradient: Tensor) -> Result<Tensor> {
        if !self.parameters.iter().any(Parameter::is_frozen) {
            return Ok(gradient);
        }
        let parts = self.within(range).map(|(parameter, within)| {
            let start = parameter.offset + within.start - range.start;
            let part = gradient.narrow(0, start, within.len())?;
            if parameter.is_frozen() { part.zeros_like() } else { Ok(part) }
        });
        match parts.collect::<Result<Vec<_>>>()?.as_slice() {
            [] => Ok(gradient),
            parts => Tensor::cat(parts, 0),
        }
    }

    /// Returns the mask for weight decay: 1 for each element of a matrix in `range` of the flat
    /// layout, and 0 for all others. The latest mask is cached, so that repeated calls with the
    /// same range, one in each training step, make it only once.
    ///
    /// # Errors
    /// If the device has no memory left.
    pub fn matrices(&self, range: Range<usize>) -> Result<Tensor> {
        let mut kept = self.matrices.lock().unwrap_or_else(PoisonError::into_inner);
        match &*kept {
            Some((of, matrices)) if *of == range => Ok(matrices.clone()),
            _ => {
                let matrices = self.new_matrices(range.clone())?;
                *kept = Some((range, matrices.clone()));
                Ok(matrices)
            }
        }
    }

    /// Returns the factor of the learning rate for each element in `range` of the flat layout;
    /// `None` if all factors are 1.
    ///
    /// # Errors
    /// If the device has no memory left.
    pub fn rates(&self, range: Range<usize>) -> Result<Option<Tensor>> {
        if self.parameters.iter().all(|parameter| parameter.rate() == 1.0) {
            return Ok(None);
        }
        let elements = |(parameter, within): (&Parameter, Range<usize>)| {
            std::iter::repeat_n(parameter.rate() as f32, within.len())
        };
        let values: Vec<f32> = self.within(&range).flat_map(elements).collect();
        Ok(Some(Tensor::from_vec(values, range.len(), &self.device)?))
    }

    fn new_matrices(&self, range: Range<usize>) -> Result<Tensor> {
        let elements = |(parameter, within): (&Parameter, Range<usize>)| {
            std::iter::repeat_n(if parameter.is_matrix() { 1f32 } else { 0.0 }, within.len())
        };
        let values: Vec<f32> = self.within(&range).flat_map(elements).collect();
        Tensor::from_vec(values, range.len(), &self.device)
    }
}
