//! Adjoints during the backward pass of a tape: gradients of a root (the scalar that is
//! differentiated) with respect to tensors.

use std::collections::{HashMap, HashSet};

use candle_core::{CpuStorage, DType, Device, Result, Shape, Tensor, TensorId, bail};
use rayon::prelude::*;

use super::{Parameter, ParameterStore, Slot};
use crate::device::AddInPlace;
use crate::float::Float;
use crate::host::for_float;
use crate::parallel::CHUNK;
use crate::profile::{even, region};
use crate::shared::Write;

/// Gradient of the root with respect to one tensor, in one of three forms.
pub(crate) enum Adjoint {
    /// The number 1: the adjoint of the root itself, a scalar.
    One,
    /// Elements on the host; the operation that receives them can reuse their memory.
    Elements(CpuStorage),
    /// A tensor on any device and of any type. Its memory must not be written to.
    Tensor(Tensor),
}

impl Adjoint {
    fn from_elements<T: Float>(elements: Vec<T>) -> Self {
        Self::Elements(T::to_cpu_storage_owned(elements))
    }

    /// Returns the elements, on the host.
    pub(super) fn elements<T: Float>(self) -> Result<Vec<T>> {
        match self {
            Self::One => Ok(vec![T::cast(1.0)]),
            Self::Elements(storage) => T::cpu_storage_data(storage),
            Self::Tensor(tensor) => tensor.flatten_all()?.to_vec1(),
        }
    }

    /// Returns the adjoint as a contiguous tensor of this shape. An adjoint that is already a
    /// tensor must have this `dtype` and `device`; it is not converted.
    pub(crate) fn tensor(self, shape: &Shape, dtype: DType, device: &Device) -> Result<Tensor> {
        match self {
            Self::One => Tensor::ones(shape, dtype, device),
            Self::Elements(storage) => {
                for_float!(&storage, T => moved::<T>(storage, shape, device))
            }
            Self::Tensor(tensor) => tensor.reshape(shape)?.contiguous(),
        }
    }
}

fn moved<T: Float>(storage: CpuStorage, shape: &Shape, device: &Device) -> Result<Tensor> {
    Tensor::from_vec(T::cpu_storage_data(storage)?, shape, device)
}

/// The flat buffer of gradients (all parameters one after the other), while a tape writes to it.
pub(super) struct Flat<'a> {
    pub(super) store: &'a ParameterStore,
    pub(super) values: FlatValues<'a>,
    /// For each parameter, whether its part of the buffer holds a gradient. If so, the next
    /// gradient is added to it; otherwise the next gradient replaces the values there.
    pub(super) written: &'a mut [bool],
    /// For each parameter, whether this backward pass has written its gradient.
    pub(super) touched: Vec<bool>,
    /// The elements of the flat buffer from this index on have been reported as final: this
    /// backward pass adds nothing more to them.
    pub(super) final_from: usize,
}

/// Values of the flat buffer of gradients.
pub(super) enum FlatValues<'a> {
    Host(&'a mut [f32]),
    /// Values on a device that can add in place, and the function that adds.
    Device(Tensor, AddInPlace),
    /// On other devices: the gradients of parameters are kept as separate tensors, and added to the
    /// buffer at the end.
    Kept,
}

/// Returns the error for a parameter that the backward pass did not reach.
pub(super) fn no_gradient(parameter: &Parameter) -> candle_core::Error {
    candle_core::Error::Msg(format!(
        "parameter {} got no gradient: the graph is cut between it and the loss",
        parameter.name()
    ))
}

/// Gradients of the root with respect to the tensors that have been reached so far.
pub struct Adjoints<'a> {
    pub(super) values: HashMap<TensorId, Adjoint>,
    pub(super) outputs: HashSet<TensorId>,
    pub(super) parameters: Option<Flat<'a>>,
}

impl Adjoints<'_> {
    /// Returns the gradient of the root with respect to a variable, in the shape of the variable;
    /// `None` if the root does not depend on it.
    ///
    /// # Errors
    /// If the device has no memory left.
    pub fn get(&self, variable: &Tensor) -> Result<Option<Tensor>> {
        fn copied<T: Float>(storage: &CpuStorage, like: &Tensor) -> Result<Tensor> {
            Tensor::from_slice(T::cpu_storage_as_slice(storage)?, like.shape(), like.device())
        }
        let tensor = |adjoint: &Adjoint| match adjoint {
            Adjoint::One => variable.ones_like(),
            Adjoint::Elements(storage) => for_float!(storage, T => copied::<T>(storage, variable)),
            Adjoint::Tensor(tensor) => tensor.reshape(variable.shape()),
        };
        self.values.get(&variable.id()).map(tensor).transpose()
    }

    /// Whether the adjoint of `tensor` is needed. The adjoints of variables and of results on the
    /// tape are needed; those of constants are not.
    pub(crate) fn wants(&self, tensor: impl Into<Slot>) -> bool {
        let slot = tensor.into();
        slot.is_variable || self.outputs.contains(&slot.id)
    }

    /// Whether the adjoint of `tensor` is needed and still empty. If so, [`give`](Self::give) moves
    /// its argument there without adding anything. Always `false` for parameters, whose gradients
    /// are in the flat buffer.
    pub(crate) fn is_first(&self, tensor: impl Into<Slot>) -> bool {
        let slot = tensor.into();
        self.wants(slot) && self.parameter(slot.id).is_none() && !self.values.contains_key(&slot.id)
    }

    /// Adds `adjoint` to the adjoint of `tensor`, or moves it there if there is none yet.
    pub(crate) fn give<T: Float>(
        &mut self,
        tensor: impl Into<Slot>,
        adjoint: Vec<T>,
    ) -> Result<()> {
        let slot = tensor.into();
        if !self.wants(slot) {
            return Ok(());
        }
        if adjoint.len() != slot.count {
            bail!(
                "{} has {} values, but its gradient has {}",
                self.describe(slot.id),
                slot.count,
                adjoint.len()
            );
        }
        if self.is_first(slot) {
            self.values.insert(slot.id, Adjoint::from_elements(adjoint));
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

    /// Lets `add` write to the adjoint of `tensor` in place. The second argument of `add` says
    /// whether it must replace the values there, or add to them.
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
            // A parameter without values may begin at this index although it is not final.
            if parameter.offset() >= flat.final_from && !parameter.is_empty() {
                candle_core::bail!(
                    "parameter {} gets a gradient from an operation that was not recorded as one that uses it",
                    parameter.name()
                );
            }
            let FlatValues::Host(all) = &mut flat.values else {
                bail!("parameter {} is not on the host, but its gradient is", parameter.name());
            };
            let Some(values) =
                T::from_f32_mut(&mut all[parameter.offset()..parameter.offset() + parameter.len()])
            else {
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
            Some(adjoint) => adjoint.elements::<T>()?,
            None => {
                write = Write::Replace;
                vec![T::default(); slot.count]
            }
        };
        add(&mut values, write)?;
        self.values.insert(slot.id, Adjoint::from_elements(values));
        Ok(())
    }

    /// Adds `gradient`, on any device and of any type, to the adjoint of `tensor`.
    pub(crate) fn give_tensor(&mut self, tensor: impl Into<Slot>, gradient: Tensor) -> Result<()> {
        let slot = tensor.into();
        if !self.wants(slot) {
            return Ok(());
        }
        if gradient.device().is_cpu() && matches!(gradient.dtype(), DType::F32 | DType::F64) {
            let gradient = gradient.flatten_all()?;
            return for_float!(&gradient, T => self.give(slot, gradient.to_vec1::<T>()?));
        }
        if let Some((part, add)) = self.part_of(slot)? {
            let gradient = gradient.to_dtype(DType::F32)?;
            return add(&part, &gradient);
        }
        let sum = match self.values.remove(&slot.id) {
            Some(before) => {
                let before =
                    before.tensor(gradient.shape(), gradient.dtype(), gradient.device())?;
                (before + gradient)?
            }
            None => gradient,
        };
        self.values.insert(slot.id, Adjoint::Tensor(sum));
        Ok(())
    }

    /// If `tensor` is a parameter, returns its part of the flat buffer and the function that adds
    /// to it. The caller must then add the parameter's gradient in place. Returns `None` for other
    /// tensors, and on devices that cannot add in place.
    ///
    /// # Shapes
    /// The gradient has the shape of the parameter, in f32.
    pub(crate) fn part_of(
        &mut self,
        tensor: impl Into<Slot>,
    ) -> Result<Option<(Tensor, AddInPlace)>> {
        let slot = tensor.into();
        let Some(flat) = &mut self.parameters else { return Ok(None) };
        let Some(index) = flat.store.index_of(slot.id) else { return Ok(None) };
        let FlatValues::Device(values, add) = &flat.values else { return Ok(None) };
        flat.touched[index] = true;
        let parameter = &flat.store.parameters()[index];
        let part = values.narrow(0, parameter.offset(), parameter.len())?;
        Ok(Some((part.reshape(parameter.shape())?, *add)))
    }

    /// Ends the backward pass. Returns the gradients that were kept as separate tensors, in the
    /// order of the parameters. The list is empty if gradients were written to the flat buffer in
    /// place.
    ///
    /// # Errors
    /// If a parameter got no gradient.
    pub(super) fn into_parts(mut self) -> Result<Vec<Tensor>> {
        let Some(flat) = self.parameters.take() else { return Ok(Vec::new()) };
        let mut parts = Vec::new();
        for (parameter, touched) in flat.store.parameters().iter().zip(&flat.touched) {
            let kept = self.values.remove(&parameter.var().id());
            match (kept, &flat.values) {
                (Some(Adjoint::Tensor(gradient)), FlatValues::Kept) => {
                    parts.push(gradient.flatten_all()?.to_dtype(DType::F32)?);
                }
                (None, FlatValues::Host(_) | FlatValues::Device(..)) if *touched => {}
                _ => return Err(no_gradient(parameter)),
            }
        }
        Ok(parts)
    }

    /// Whether a tensor is the result of a recorded operation, or a parameter.
    pub(crate) fn knows(&self, id: TensorId) -> bool {
        self.outputs.contains(&id) || self.parameter(id).is_some()
    }

    /// Describes a tensor for error messages; a parameter is described by its name.
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
