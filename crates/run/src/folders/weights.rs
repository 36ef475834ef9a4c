//! Tensors between a parameter store of ours and a file of the library Transformers.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use candle_core::{DType, Device, Tensor};
use safetensors::Dtype;
use safetensors::tensor::View;
use sha2::{Digest, Sha256};
use taper_ops::{Parameter, ParameterStore};

/// What a parameter of ours is in a file of theirs.
pub(super) struct Counterpart {
    /// The tensors that it is made of, one after another along its first dimension.
    pub(super) names: Vec<String>,
    /// The shape of each.
    pub(super) shape: Vec<usize>,
    /// Whether each is the transpose.
    pub(super) transposed: bool,
}

impl Counterpart {
    /// One tensor of the same shape.
    pub(super) fn same(name: impl Into<String>, shape: &[usize]) -> Self {
        Self { names: vec![name.into()], shape: shape.to_vec(), transposed: false }
    }

    /// The same values in another shape.
    pub(super) fn of_shape(self, shape: Vec<usize>) -> Self {
        Self { shape, ..self }
    }

    /// A matrix that lies the other way round there, where `transposed`.
    pub(super) fn transposed(mut self, transposed: bool) -> Self {
        if transposed {
            self.shape.reverse();
        }
        Self { transposed, ..self }
    }

    /// Equal parts with these names.
    pub(super) fn in_parts(names: Vec<String>, shape: &[usize]) -> Self {
        let mut of_each = shape.to_vec();
        if let Some(first) = of_each.first_mut() {
            *first /= names.len();
        }
        Self { names, shape: of_each, transposed: false }
    }
}

/// The tensors of a file, by the names that the file has for them or should have.
pub(super) struct Tensors {
    by_name: HashMap<String, Tensor>,
    /// The SHA-256 of the file, in hexadecimal.
    pub(super) sha256: String,
}

impl Tensors {
    /// Reads a file; `renamed` gives the name by which a tensor is asked for.
    pub(super) fn read(path: &Path, renamed: impl Fn(&str) -> String) -> Result<Self> {
        let bytes = fs::read(path).context("cannot read it")?;
        let sha256 = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        let by_name = candle_core::safetensors::load_buffer(&bytes, &Device::Cpu)
            .context("not a safetensors file")?
            .into_iter()
            .map(|(name, tensor)| (renamed(&name), tensor))
            .collect();
        Ok(Self { by_name, sha256 })
    }

    /// Whether there is such a tensor.
    pub(super) fn has(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// Leaves out those that the model has no use for.
    pub(super) fn leave_out(&mut self, is_unused: impl Fn(&str) -> bool) {
        self.by_name.retain(|name, _| !is_unused(name));
    }

    /// Takes the tensor `name`, which has to be of the shape `expected`, in f32.
    fn take(&mut self, name: &str, expected: &[usize]) -> Result<Tensor> {
        let Some(tensor) = self.by_name.remove(name) else {
            bail!("has no tensor {name}, which config.json asks for");
        };
        if tensor.dims() != expected {
            bail!(
                "tensor {name} has shape {:?}, but config.json asks for {expected:?}",
                tensor.dims()
            );
        }
        if !tensor.dtype().is_float() {
            bail!("tensor {name} has type {:?}, which is no floating point", tensor.dtype());
        }
        Ok(tensor.to_dtype(DType::F32)?)
    }

    /// Takes a second copy of `parameter` that some files have under the name `name`.
    ///
    /// # Errors
    /// When it is there and differs.
    pub(super) fn take_copy(&mut self, name: &str, parameter: Option<&Parameter>) -> Result<()> {
        let (Some(_), Some(parameter)) = (self.by_name.get(name), parameter) else { return Ok(()) };
        let copy = self.take(name, parameter.shape())?;
        let values = |tensor: &Tensor| tensor.flatten_all()?.to_vec1::<f32>();
        if values(&copy)? != values(parameter.var().as_tensor())? {
            bail!(
                "{name} differs from what {} is read from, but config.json has the two tied",
                parameter.name()
            );
        }
        Ok(())
    }

    /// Sets every parameter of `store`.
    ///
    /// # Errors
    /// When a tensor is missing or of another shape or type.
    pub(super) fn fill(
        &mut self,
        store: &ParameterStore,
        counterpart: impl Fn(&str, &[usize]) -> Option<Counterpart>,
    ) -> Result<()> {
        for parameter in store.parameters() {
            let (name, shape) = (parameter.name(), parameter.shape());
            let Some(theirs) = counterpart(name, shape) else {
                bail!("the parameter {name} has no counterpart");
            };
            let parts = theirs
                .names
                .iter()
                .map(|name| self.take(name, &theirs.shape))
                .collect::<Result<Vec<_>>>()?;
            let whole = Tensor::cat(&parts, 0)?;
            let whole = if theirs.transposed { whole.t()?.contiguous()? } else { whole };
            parameter.var().set(&whole.reshape(shape)?)?;
        }
        Ok(())
    }

    /// Refuses what has not been taken.
    ///
    /// # Errors
    /// With a tensor that `what` does not have.
    pub(super) fn require_none_left(&self, what: &str) -> Result<()> {
        match self.by_name.keys().min() {
            Some(name) => {
                bail!("has a tensor {name}, which a {what} of this config.json does not have")
            }
            None => Ok(()),
        }
    }
}

/// A tensor under its name in Transformers.
pub(super) struct Named {
    pub(super) name: String,
    shape: Vec<usize>,
    values: Vec<f32>,
}

impl View for &Named {
    fn dtype(&self) -> Dtype {
        Dtype::F32
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        self.values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>().into()
    }

    fn data_len(&self) -> usize {
        size_of_val(&self.values[..])
    }
}

/// The parameters of `store` as `what` has them.
///
/// # Errors
/// When one of them has no counterpart there.
pub(super) fn named(
    store: &ParameterStore,
    what: &str,
    counterpart: impl Fn(&str, &[usize]) -> Option<Counterpart>,
) -> Result<Vec<Named>> {
    let mut all = Vec::new();
    for parameter in store.parameters() {
        let (name, shape) = (parameter.name(), parameter.shape());
        let Some(theirs) = counterpart(name, shape) else {
            bail!("the parameter {name} has no counterpart in a {what}");
        };
        let value = parameter.var().as_detached_tensor().to_dtype(DType::F32)?;
        let value = if theirs.transposed { value.t()?.contiguous()? } else { value };
        let parts = value.chunk(theirs.names.len(), 0)?;
        for (name, part) in theirs.names.into_iter().zip(parts) {
            let values = part.contiguous()?.flatten_all()?.to_vec1()?;
            all.push(Named { name, shape: theirs.shape.clone(), values });
        }
    }
    Ok(all)
}
