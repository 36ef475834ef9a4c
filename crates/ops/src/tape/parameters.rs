//! Parameters in a fixed order, each with its full name.
//!
//! Candle's `VarMap` is a hash map whose order changes from process to process; a flat layout needs
//! one order, and with it clipping, averaging and the optimizer are single passes.

use candle_core::{Device, Result, Tensor, TensorId, Var};
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
