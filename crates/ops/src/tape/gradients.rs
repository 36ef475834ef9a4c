//! Gradients of all parameters in one flat buffer, in the order of the parameter store.

use super::adjoints::{FlatValues, no_gradient};
use super::parameters::{Parameter, ParameterStore};
use crate::parallel::CHUNK;
use crate::profile::{even, region};
use candle_core::{DType, Result, Tensor, backprop::GradStore};
use rayon::prelude::*;
use std::ops::Range;

/// Gradients of all parameters, summed over micro-batches, in one flat buffer: parameter after
/// parameter.
#[derive(Debug)]
pub struct Gradients {
    flat: Tensor,
    /// Start of each parameter's part in the buffer, followed by the end of the last part.
    offsets: Vec<usize>,
    /// For each parameter, whether its part holds a gradient. If not, the values there are old and
    /// count as zero.
    written: Vec<bool>,
}

impl Gradients {
    /// Makes zero gradients for the parameters of a store.
    ///
    /// # Errors
    /// If the device has no memory left.
    pub fn new(store: &ParameterStore) -> Result<Self> {
        let offsets = store.parameters().iter().map(|p| p.offset()).chain([store.len()]).collect();
        let written = vec![true; store.parameters().len()];
        Ok(Self {
            flat: Tensor::zeros(store.len().max(1), DType::F32, store.device())?,
            offsets,
            written,
        })
    }

    /// Returns the buffer, f32, `(total,)`, after filling the parts that hold no gradient with
    /// zeros.
    ///
    /// # Errors
    /// If the buffer is in use elsewhere.
    pub fn flat(&mut self) -> Result<&Tensor> {
        if self.written.iter().any(|written| !written) {
            let (offsets, written) = (&self.offsets, &mut self.written);
            crate::host::update_elements(&self.flat, |flat| {
                for (index, written) in
                    written.iter_mut().enumerate().filter(|(_, written)| !**written)
                {
                    flat[offsets[index]..offsets[index + 1]].fill(0.0);
                    *written = true;
                }
                Ok(())
            })?;
        }
        Ok(&self.flat)
    }

    /// Calls `work` with the buffer on the host, and with the list that says which parts hold a
    /// gradient.
    pub(crate) fn update(
        &mut self,
        mut work: impl FnMut(&mut [f32], &mut [bool]) -> Result<()>,
    ) -> Result<()> {
        let written = &mut self.written;
        crate::host::update_elements(&self.flat, |flat| work(flat, written))
    }

    /// Runs the backward pass `backward` with the values of the buffer. `backward` can add to the
    /// values in place, and return an empty list. Otherwise it returns the gradients of all
    /// parameters in order, and they are added here.
    pub(super) fn receive(
        &mut self,
        store: &ParameterStore,
        mut backward: impl FnMut(FlatValues<'_>, &mut [bool]) -> Result<Vec<Tensor>>,
    ) -> Result<()> {
        if store.device().is_cpu() {
            return self
                .update(|flat, written| backward(FlatValues::Host(flat), written).map(|_| ()));
        }
        crate::device::check(store.device())?;
        let values = match crate::device::add_in_place(store.device()) {
            Some(add) => FlatValues::Device(self.flat.clone(), add),
            None => FlatValues::Kept,
        };
        let parts = backward(values, &mut self.written)?;
        self.add_parts(&parts)
    }

    /// Adds the gradients of all parameters, each `(len,)` in f32; if `parts` is empty, adds
    /// nothing.
    fn add_parts(&mut self, parts: &[Tensor]) -> Result<()> {
        if !parts.is_empty() {
            self.flat = (&self.flat + Tensor::cat(parts, 0)?)?.detach();
        }
        Ok(())
    }

    /// Multiplies all gradients by a factor.
    ///
    /// # Errors
    /// If the device has no memory left.
    pub fn scale(&mut self, factor: f64) -> Result<()> {
        self.flat()?;
        self.flat = (&self.flat * factor)?.detach();
        Ok(())
    }

    /// Adds the gradients of one backward pass that Candle computed.
    ///
    /// # Errors
    /// If a parameter has no gradient: the graph does not connect it to the loss, and training
    /// would silently go wrong.
    pub fn accumulate(&mut self, store: &ParameterStore, grads: &GradStore) -> Result<()> {
        crate::device::check(store.device())?;
        let gradient = |parameter: &Parameter| match grads.get(parameter.var().as_tensor()) {
            Some(gradient) => gradient.flatten_all()?.to_dtype(DType::F32)?.contiguous(),
            None => Err(no_gradient(parameter)),
        };
        if store.device().is_cpu() {
            return self.update(|flat, written| {
                for (parameter, written) in store.parameters().iter().zip(written) {
                    let gradient = gradient(parameter)?;
                    let host = crate::host::Host::new(&gradient)?;
                    let total = &mut flat[parameter.offset()..parameter.offset() + parameter.len()];
                    if std::mem::replace(written, true) {
                        crate::parallel::add(total, host.elements::<f32>()?);
                    } else {
                        total.copy_from_slice(host.elements::<f32>()?);
                    }
                }
                Ok(())
            });
        }
        let parts = store.parameters().iter().map(gradient).collect::<Result<Vec<_>>>()?;
        self.add_parts(&parts)
    }

    /// Adds the gradients in `other`, a buffer for the same store.
    ///
    /// # Errors
    /// If the device has no memory left.
    pub fn add(&mut self, other: &mut Self) -> Result<()> {
        crate::device::check(self.flat.device())?;
        if !self.flat.device().is_cpu() {
            self.flat = (&self.flat + &other.flat)?.detach();
            return Ok(());
        }
        let all = 0..self.flat.elem_count();
        other.with_part(all.clone(), |values| self.add_part(all.start, values))
    }

    /// Adds `values` to the gradients from index `start` of the buffer on. Only for buffers on the
    /// host.
    ///
    /// # Errors
    /// If the buffer has fewer values from `start` on.
    pub fn add_part(&mut self, start: usize, values: &[f32]) -> Result<()> {
        self.flat()?;
        let range = start..start + values.len();
        crate::host::update_elements(&self.flat, |total| {
            let Some(total) = total.get_mut(range.clone()) else {
                candle_core::bail!("gradients {range:?} are not in the buffer");
            };
            region(even(values.len().div_ceil(CHUNK)), || {
                total
                    .par_chunks_mut(CHUNK)
                    .zip(values.par_chunks(CHUNK))
                    .for_each(|(total, values)| crate::parallel::add(total, values));
            });
            Ok(())
        })
    }

    /// Calls `work` with the gradients in `range` of the buffer. Only for buffers on the host.
    ///
    /// # Errors
    /// If the buffer has no such range, and errors of `work`.
    pub fn with_part<T>(
        &mut self,
        range: Range<usize>,
        work: impl FnOnce(&[f32]) -> Result<T>,
    ) -> Result<T> {
        let host = crate::host::Host::new(self.flat()?)?;
        match host.elements::<f32>()?.get(range.clone()) {
            Some(part) => work(part),
            None => candle_core::bail!("gradients {range:?} are not in the buffer"),
        }
    }

    /// Resets all gradients to zero.
    ///
    /// # Errors
    /// If the device has no memory left.
    pub fn zero(&mut self) -> Result<()> {
        crate::device::check(self.flat.device())?;
        if self.flat.device().is_cpu() {
            // The first gradient that is added to a part will overwrite the old values.
            self.written.fill(false);
        } else {
            self.flat = self.flat.zeros_like()?;
        }
        Ok(())
    }
}
