//! Gradients of a root during the backward pass of a tape.

use std::collections::{HashMap, HashSet};

use candle_core::{CpuStorage, Result, Tensor, TensorId};
use rayon::prelude::*;

use super::{Parameter, ParameterStore, Slot};
use crate::float::Float;
use crate::host::for_float;
use crate::parallel::CHUNK;
use crate::profile::{even, region};
use crate::shared::Write;

/// Flat gradient buffer while a tape writes to it.
pub(super) struct Flat<'a> {
    pub(super) store: &'a ParameterStore,
    pub(super) values: &'a mut [f32],
    /// Whether the part of each parameter holds a gradient to add to.
    pub(super) written: &'a mut [bool],
    /// Whether this pass has reached each parameter.
    pub(super) touched: Vec<bool>,
    /// Place from which on all gradients have been reported as final.
    pub(super) final_from: usize,
}

/// Gradients of the root by the tensors reached so far.
pub struct Adjoints<'a> {
    pub(super) values: HashMap<TensorId, CpuStorage>,
    pub(super) outputs: HashSet<TensorId>,
    pub(super) parameters: Option<Flat<'a>>,
}

impl Adjoints<'_> {
    /// Gradient by a variable, in the shape of the variable; `None` if there is none.
    ///
    /// # Errors
    /// If the device has no memory left.
    pub fn get(&self, variable: &Tensor) -> Result<Option<Tensor>> {
        fn tensor<T: Float>(storage: &CpuStorage, like: &Tensor) -> Result<Tensor> {
            Tensor::from_slice(T::cpu_storage_as_slice(storage)?, like.shape(), like.device())
        }
        let tensor = |storage| for_float!(storage, T => tensor::<T>(storage, variable));
        self.values.get(&variable.id()).map(tensor).transpose()
    }

    /// Whether the adjoint of `tensor` is needed; the adjoint of a constant is not.
    pub(crate) fn wants(&self, tensor: impl Into<Slot>) -> bool {
        let slot = tensor.into();
        slot.is_variable || self.outputs.contains(&slot.id)
    }

    /// Whether the adjoint of `tensor` is needed and nothing has been added to it yet: the first
    /// one that is added is moved.
    pub(crate) fn is_first(&self, tensor: impl Into<Slot>) -> bool {
        let slot = tensor.into();
        self.wants(slot) && self.parameter(slot.id).is_none() && !self.values.contains_key(&slot.id)
    }

    /// Adds `adjoint` to the adjoint of `tensor`; the first one is moved.
    pub(crate) fn give<T: Float>(
        &mut self,
        tensor: impl Into<Slot>,
        adjoint: Vec<T>,
    ) -> Result<()> {
        let slot = tensor.into();
        if !self.wants(slot) {
            return Ok(());
        }
        if self.is_first(slot) {
            self.values.insert(slot.id, T::to_cpu_storage_owned(adjoint));
            return Ok(());
        }
        self.add_with(slot, |total: &mut [T], write| {
            region(even(adjoint.len().div_ceil(CHUNK)), || {
                total.par_chunks_mut(CHUNK).zip(adjoint.par_chunks(CHUNK)).for_each(
                    |(total, adjoint)| match write {
                        Write::Replace => total.copy_from_slice(adjoint),
                        Write::Add => crate::parallel::add(total, adjoint),
                    },
                );
            });
            Ok(())
        })
    }

    /// Lets `add` write the adjoint of `tensor` in place: by replacing the values there, or by
    /// adding to them.
    pub(crate) fn add_with<T: Float>(
        &mut self,
        tensor: impl Into<Slot>,
        add: impl FnOnce(&mut [T], Write) -> Result<()>,
    ) -> Result<()> {
        let slot = tensor.into();
        if !self.wants(slot) {
            return Ok(());
        }
        if let Some(flat) = &mut self.parameters
            && let Some(index) = flat.store.index_of(slot.id)
        {
            let parameter = &flat.store.parameters()[index];
            if parameter.offset() >= flat.final_from {
                candle_core::bail!(
                    "parameter {} gets a gradient of an operation that was not noted as one on it",
                    parameter.name()
                );
            }
            let Some(values) = T::from_f32_mut(
                &mut flat.values[parameter.offset()..parameter.offset() + parameter.len()],
            ) else {
                candle_core::bail!(
                    "parameter {} is f32, but its gradient is not",
                    parameter.name()
                );
            };
            let write = if flat.written[index] { Write::Add } else { Write::Replace };
            (flat.written[index], flat.touched[index]) = (true, true);
            return add(values, write);
        }
        let mut write = Write::Add;
        let mut values = match self.values.remove(&slot.id) {
            Some(storage) => T::cpu_storage_data(storage)?,
            None => {
                write = Write::Replace;
                vec![T::default(); slot.count]
            }
        };
        add(&mut values, write)?;
        self.values.insert(slot.id, T::to_cpu_storage_owned(values));
        Ok(())
    }

    /// Whether a tensor is a result on the tape, or a parameter.
    pub(crate) fn knows(&self, id: TensorId) -> bool {
        self.outputs.contains(&id) || self.parameter(id).is_some()
    }

    /// Name of a tensor in messages: the name of its parameter.
    pub(crate) fn describe(&self, id: TensorId) -> String {
        match self.parameter(id) {
            Some(parameter) => format!("parameter {}", parameter.name()),
            None => "the result of another operation".to_owned(),
        }
    }

    fn parameter(&self, id: TensorId) -> Option<&Parameter> {
        let flat = self.parameters.as_ref()?;
        Some(&flat.store.parameters()[flat.store.index_of(id)?])
    }
}
