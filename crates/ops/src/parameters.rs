//! Parameters in a fixed order by full name, and their gradients in one flat buffer that mirrors
//! them.
//!
//! Candle's `VarMap` is a hash map whose order changes from process to process; a flat layout needs
//! one order, and with it clipping, averaging and the optimizer are single passes.

use candle_core::{DType, Device, Result, Tensor, TensorId, Var, backprop::GradStore};
use std::collections::HashMap;

/// A trainable tensor, kept in f32.
#[derive(Debug, Clone)]
pub struct Parameter {
    name: String,
    var: Var,
    offset: usize,
}

impl Parameter {
    /// The full name, such as `encoder.layers.0.self_attention.qkv.weight`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The shape.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        self.var.dims()
    }

    /// Where it starts in the flat layout of its store.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Number of scalars.
    #[must_use]
    pub fn len(&self) -> usize {
        self.var.elem_count()
    }

    /// Whether it has no scalars.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether weight decay applies: matrices yes, biases and norms no.
    #[must_use]
    pub fn is_matrix(&self) -> bool {
        self.var.rank() >= 2
    }

    /// Sets its values, in row-major order.
    ///
    /// # Errors
    /// When they do not fill the shape, or the device has no memory left.
    pub fn set(&self, values: Vec<f32>) -> Result<()> {
        self.var.set(&Tensor::from_vec(values, self.shape(), self.var.device())?)
    }

    /// The variable itself, tracked by autodiff.
    #[must_use]
    pub fn var(&self) -> &Var {
        &self.var
    }
}

/// Parameters in the order in which the model made them.
#[derive(Debug, Clone)]
pub struct ParameterStore {
    parameters: Vec<Parameter>,
    indices: HashMap<TensorId, usize>,
    total: usize,
    device: Device,
}

impl ParameterStore {
    /// An empty store for a device.
    #[must_use]
    pub fn new(device: &Device) -> Self {
        Self { parameters: Vec::new(), indices: HashMap::new(), total: 0, device: device.clone() }
    }

    /// Adds a parameter with its initial values and returns its tensor, tracked.
    ///
    /// # Errors
    /// When the name is taken, the values do not fill the shape, or the device has no memory left.
    pub fn add(&mut self, name: &str, shape: &[usize], values: Vec<f32>) -> Result<Tensor> {
        if self.get(name).is_some() {
            candle_core::bail!("parameter {name} exists already");
        }
        let var = Var::from_tensor(&Tensor::from_vec(values, shape, &self.device)?)?;
        let tensor = var.as_tensor().clone();
        let offset = self.total;
        self.total += var.elem_count();
        self.indices.insert(tensor.id(), self.parameters.len());
        self.parameters.push(Parameter { name: name.to_owned(), var, offset });
        Ok(tensor)
    }

    /// All parameters, in order.
    #[must_use]
    pub fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    /// The parameter of a name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Parameter> {
        self.parameters.iter().find(|parameter| parameter.name == name)
    }

    /// The place of the parameter that a tensor is, if it is one.
    pub(crate) fn index_of(&self, id: TensorId) -> Option<usize> {
        self.indices.get(&id).copied()
    }

    /// Scalars of all parameters together.
    #[must_use]
    pub fn len(&self) -> usize {
        self.total
    }

    /// Whether there is no parameter.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.parameters.is_empty()
    }

    /// The device on which the parameters live.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The current values in the flat layout: a copy, f32, `(total,)`.
    ///
    /// # Errors
    /// When the device has no memory left.
    pub fn flat(&self) -> Result<Tensor> {
        let parts = self
            .parameters
            .iter()
            .map(|p| p.var.as_detached_tensor().flatten_all())
            .collect::<Result<Vec<_>>>()?;
        match parts.as_slice() {
            // Of one alone `cat` makes no copy.
            [one] => one.copy(),
            several => Tensor::cat(several, 0),
        }
    }

    /// Sets every parameter from the flat layout.
    ///
    /// # Errors
    /// When `flat` has another length than the store.
    pub fn set_flat(&self, flat: &Tensor) -> Result<()> {
        if flat.elem_count() != self.total {
            candle_core::bail!("{} values for {} parameters", flat.elem_count(), self.total);
        }
        for parameter in &self.parameters {
            parameter.var.set(
                &flat
                    .narrow(0, parameter.offset, parameter.len())?
                    .reshape(parameter.shape())?
                    .contiguous()?,
            )?;
        }
        Ok(())
    }
}

/// The error of a pass that does not reach a parameter.
pub(crate) fn no_gradient(parameter: &Parameter) -> candle_core::Error {
    candle_core::Error::Msg(format!(
        "parameter {} got no gradient: the graph is cut between it and the loss",
        parameter.name
    ))
}

/// The gradient of every parameter, added up over micro-batches, in one flat buffer.
#[derive(Debug)]
pub struct Gradients {
    flat: Tensor,
    /// Where each parameter's part of the buffer begins, and the end of the last.
    offsets: Vec<usize>,
    /// Parameters whose part holds a gradient; what the others' parts hold is of no account.
    written: Vec<bool>,
}

impl Gradients {
    /// Zeros for each parameter of a store.
    ///
    /// # Errors
    /// When the device has no memory left.
    pub fn new(store: &ParameterStore) -> Result<Self> {
        let offsets = store.parameters.iter().map(|p| p.offset).chain([store.total]).collect();
        let written = vec![true; store.parameters.len()];
        Ok(Self {
            flat: Tensor::zeros(store.len().max(1), DType::F32, store.device())?,
            offsets,
            written,
        })
    }

    /// The buffer, f32, `(total,)`.
    ///
    /// # Errors
    /// When it is in use.
    pub fn flat(&mut self) -> Result<&Tensor> {
        if self.written.iter().any(|written| !written) {
            let (offsets, written) = (&self.offsets, &mut self.written);
            crate::optimizer::update_elements(&self.flat, |flat| {
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

    /// Lends the buffer of the host with the note of what has been written.
    pub(crate) fn update(
        &mut self,
        mut work: impl FnMut(&mut [f32], &mut [bool]) -> Result<()>,
    ) -> Result<()> {
        let written = &mut self.written;
        crate::optimizer::update_elements(&self.flat, |flat| work(flat, written))
    }

    /// Adds the gradients of one backward pass by Candle.
    ///
    /// # Errors
    /// When a parameter has no gradient: somewhere the graph is cut, and training would go wrong in
    /// silence.
    pub fn accumulate(&mut self, store: &ParameterStore, grads: &GradStore) -> Result<()> {
        let gradient = |parameter: &Parameter| match grads.get(parameter.var.as_tensor()) {
            Some(gradient) => gradient.flatten_all()?.to_dtype(DType::F32)?.contiguous(),
            None => Err(no_gradient(parameter)),
        };
        if store.device().is_cpu() {
            return self.update(|flat, written| {
                for (parameter, written) in store.parameters.iter().zip(written) {
                    let gradient = gradient(parameter)?;
                    let host = crate::real::Host::new(&gradient)?;
                    let total = &mut flat[parameter.offset..parameter.offset + parameter.len()];
                    if std::mem::replace(written, true) {
                        crate::parallel::add(total, host.elements::<f32>()?);
                    } else {
                        total.copy_from_slice(host.elements::<f32>()?);
                    }
                }
                Ok(())
            });
        }
        let parts = store.parameters.iter().map(gradient).collect::<Result<Vec<_>>>()?;
        self.flat = (&self.flat + Tensor::cat(&parts, 0)?)?.detach();
        Ok(())
    }

    /// Starts over.
    ///
    /// # Errors
    /// When the device has no memory left.
    pub fn zero(&mut self) -> Result<()> {
        if self.flat.device().is_cpu() {
            // The first gradient overwrites what is there.
            self.written.fill(false);
        } else {
            self.flat = self.flat.zeros_like()?;
        }
        Ok(())
    }
}
