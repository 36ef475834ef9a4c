//! Parameters in a fixed order, each with its full name.
//!
//! Candle's `VarMap` is a hash map, whose order changes from process to process. With a fixed
//! order, parameters have a flat layout (one after the other in one buffer). Gradient clipping,
//! weight averaging and the optimizer then each need a single pass over the buffer.

mod updates;

pub use updates::ElementFactors;
use updates::Latest;

use crate::host::{Host, update_elements};
use crate::products::int8::Int8Matrix;
use candle_core::{DType, Device, Result, Tensor, TensorId, Var};
use half::bf16;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Number of rows that [`Parameter::round_to_int8`] rounds at once.
const ROUNDED_ROWS: usize = 1024;

/// A tensor of a model: trained, or constant if the model trains adapters instead (see
/// [`ParameterStore`]).
#[derive(Debug, Clone)]
pub struct Parameter {
    name: String,
    shape: Vec<usize>,
    var: Var,
    offset: usize,
    /// Number of rows of each projection of the parameter; see [`Parameter::projections`].
    projections: Vec<usize>,
    /// True if the parameter is frozen. All copies of the store share this flag.
    frozen: Arc<AtomicBool>,
    /// Multiplier of the learning rate for this parameter, stored as the bits of an f64. All copies
    /// of the store share it.
    rate: Arc<AtomicU64>,
}

impl Parameter {
    /// Returns the full name, such as `encoder.layers.0.self_attention.qkv.weight`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the shape.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Returns the index of the parameter's first scalar in the flat layout of the store.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Returns the number of scalars.
    #[must_use]
    pub fn len(&self) -> usize {
        scalars(&self.shape)
    }

    /// True if the parameter has no scalars.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// True if weight decay applies to the parameter. It applies to matrices, but not to biases and
    /// norms.
    #[must_use]
    pub fn is_matrix(&self) -> bool {
        self.shape.len() >= 2
    }

    /// Returns the number of rows of each weight matrix (projection) in the parameter, from the
    /// first row down. A parameter can consist of several matrices, one below the other, such as
    /// those for queries, keys and values. The list is empty for embeddings, for the projection to
    /// the vocabulary, for vectors and for adapters.
    #[must_use]
    pub fn projections(&self) -> &[usize] {
        &self.projections
    }

    /// Freezes the parameter: from now on its gradient counts as zero, and no update changes it.
    /// Its values can still be [set](Self::set), for example when a checkpoint is loaded.
    pub fn freeze(&self) {
        self.frozen.store(true, Ordering::Relaxed);
    }

    /// True if updates leave the parameter unchanged.
    #[must_use]
    pub fn is_frozen(&self) -> bool {
        self.frozen.load(Ordering::Relaxed)
    }

    /// Sets the multiplier of the learning rate for this parameter. It applies to later updates.
    pub fn set_rate(&self, rate: f64) {
        self.rate.store(rate.to_bits(), Ordering::Relaxed);
    }

    /// Returns the multiplier of the learning rate for this parameter; 1 by default.
    #[must_use]
    pub fn rate(&self) -> f64 {
        f64::from_bits(self.rate.load(Ordering::Relaxed))
    }

    /// Sets the parameter's values, given in row-major order. They are rounded if the parameter is
    /// held in bf16.
    ///
    /// # Errors
    /// If the number of values does not fit the shape, or the device has no memory left.
    pub fn set(&self, values: Vec<f32>) -> Result<()> {
        crate::device::check(self.var.device())?;
        let values = Tensor::from_vec(values, self.shape(), self.var.device())?;
        self.var.set(&values.to_dtype(self.var.dtype())?)
    }

    /// Lets `fill` change the parameter's values in place, in row-major order, and returns the
    /// result of `fill`. If the values are not in f32 on the host, returns `None` without calling
    /// `fill`.
    ///
    /// # Errors
    /// If the values are in use elsewhere.
    pub fn fill<R>(&self, fill: impl FnOnce(&mut [f32]) -> R) -> Result<Option<R>> {
        if self.dtype() != DType::F32 || !self.var.device().is_cpu() {
            return Ok(None);
        }
        let (mut fill, mut filled) = (Some(fill), None);
        update_elements(&self.var.as_detached_tensor(), |values| {
            filled = fill.take().map(|fill| fill(values));
            Ok(())
        })?;
        Ok(filled)
    }

    /// If the parameter is the weight of a linear layer or an embedding, rounds its values to those
    /// that an [`Int8Matrix`] can represent.
    ///
    /// # Errors
    /// If a weight is not finite, or the device has no memory left. Some rows may then be rounded,
    /// and others not.
    pub fn round_to_int8(&self) -> Result<()> {
        if !Int8Matrix::holds(self.name(), self.shape()) {
            return Ok(());
        }
        let width = self.shape()[1].max(1);
        // Rows are rounded in place, some at a time. A copy of the whole table of embeddings could
        // be the largest block of memory that loading a model needs.
        let round = |values: &mut [f32]| {
            values.chunks_mut(ROUNDED_ROWS * width).all(|rows| {
                let rounded = Int8Matrix::round(rows, width);
                rows.copy_from_slice(&rounded.to_f32());
                rounded.scales().iter().all(|scale| scale.is_finite())
            })
        };
        let is_finite = match self.fill(round)? {
            Some(is_finite) => is_finite,
            None => {
                let mut values = self.values()?;
                let is_finite = round(&mut values);
                self.set(values)?;
                is_finite
            }
        };
        if !is_finite {
            candle_core::bail!("{} has a weight that is not finite", self.name());
        }
        Ok(())
    }

    /// Returns a copy of the parameter's values, in row-major order.
    ///
    /// # Errors
    /// If the device has no memory left.
    pub fn values(&self) -> Result<Vec<f32>> {
        let values = self.var.as_detached_tensor().flatten_all()?;
        if values.dtype() == DType::BF16 && values.device().is_cpu() {
            // Candle's conversion would make two copies in f32.
            let host = Host::new(&values)?;
            return Ok(host.elements::<bf16>()?.iter().map(|value| value.to_f32()).collect());
        }
        values.to_dtype(DType::F32)?.to_vec1()
    }

    /// Returns the type in which the values are stored: f32, except for matrices of the base of a
    /// model with adapters.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.var.dtype()
    }

    /// Returns the variable itself, which autodiff tracks.
    #[must_use]
    pub fn var(&self) -> &Var {
        &self.var
    }
}

/// Parameters in the order in which the model made them.
///
/// If a model has adapters (low-rank matrices that are trained instead of the weights), its other
/// parameters form its base. These are constants outside the flat layout, so that gradients,
/// optimizers and checkpoints do not contain them.
#[derive(Debug, Clone)]
pub struct ParameterStore {
    parameters: Vec<Parameter>,
    base: Vec<Parameter>,
    /// Multiplier of the product of an adapter's matrices; `None` without adapters.
    adapter_scale: Option<f64>,
    indices: HashMap<TensorId, usize>,
    total: usize,
    device: Device,
    is_outline: bool,
    /// Tensor that [`ParameterStore::matrices`] made last, cached for its next call.
    matrices: Arc<Latest>,
    /// Tensor that [`ParameterStore::rates`] made last, cached for its next call.
    rates: Arc<Latest>,
}

impl ParameterStore {
    /// Makes an empty store for a device.
    #[must_use]
    pub fn new(device: &Device) -> Self {
        Self {
            parameters: Vec::new(),
            base: Vec::new(),
            adapter_scale: None,
            indices: HashMap::new(),
            total: 0,
            device: device.clone(),
            is_outline: false,
            matrices: Arc::default(),
            rates: Arc::default(),
        }
    }

    /// Makes an empty outline: a store for names and shapes only. Parameters that are added to it
    /// hold no values, and nothing can be computed with them.
    #[must_use]
    pub fn outline(device: &Device) -> Self {
        Self { is_outline: true, ..Self::new(device) }
    }

    /// Whether the store is an outline, whose parameters hold no values.
    #[must_use]
    pub fn is_outline(&self) -> bool {
        self.is_outline
    }

    /// Adds a parameter with its initial values (which an outline ignores). Returns the parameter's
    /// tensor, which Candle tracks.
    ///
    /// # Errors
    /// If the name is taken, the number of values does not fit the shape, or the device has no
    /// memory left.
    pub fn add(&mut self, name: &str, shape: &[usize], values: Vec<f32>) -> Result<Tensor> {
        // Checks the total, since gradients and the optimizer's state are flat buffers of this
        // length.
        let total = self.total.saturating_add(scalars(shape));
        crate::device::check_count(&self.device, "the parameters", total)?;
        let var = match self.is_outline {
            true => Var::zeros(0, DType::F32, &self.device)?,
            false => Var::from_vec(values, shape, &self.device)?,
        };
        let parameter = self.make(name, shape, var)?;
        let tensor = parameter.var.as_tensor().clone();
        self.total = total;
        self.indices.insert(tensor.id(), self.parameters.len());
        self.parameters.push(parameter);
        Ok(tensor)
    }

    /// Adds a parameter to the base, and returns its tensor: a constant, held in `dtype`, which is
    /// zero until it is [set](Parameter::set). Otherwise like [`ParameterStore::add`].
    ///
    /// # Errors
    /// Errors of [`ParameterStore::add`].
    pub fn add_to_base(&mut self, name: &str, shape: &[usize], dtype: DType) -> Result<Tensor> {
        crate::device::check_count(&self.device, "a parameter", scalars(shape))?;
        let var = match self.is_outline {
            true => Var::zeros(0, dtype, &self.device)?,
            false => Var::zeros(shape, dtype, &self.device)?,
        };
        let parameter = self.make(name, shape, var)?;
        parameter.freeze();
        let tensor = parameter.var.as_detached_tensor();
        self.base.push(parameter);
        Ok(tensor)
    }

    fn make(&self, name: &str, shape: &[usize], var: Var) -> Result<Parameter> {
        if self.get(name).is_some() {
            candle_core::bail!("parameter {name} exists already");
        }
        let (name, shape, offset) = (name.to_owned(), shape.to_vec(), self.total);
        let (frozen, rate) = (Arc::default(), Arc::new(AtomicU64::new(1.0_f64.to_bits())));
        Ok(Parameter { name, shape, var, offset, projections: Vec::new(), frozen, rate })
    }

    /// Declares that the parameter `name` consists of weight matrices with these numbers of rows,
    /// from the first row down; [`Parameter::projections`] returns the numbers. Does nothing for a
    /// parameter of the base, because it is not updated.
    ///
    /// # Panics
    /// If the sum of `rows` is not the parameter's number of rows.
    pub fn set_projections(&mut self, name: &str, rows: &[usize]) {
        let of_name = self.parameters.iter_mut().rev().find(|one| one.name == name);
        if let Some(parameter) = of_name {
            assert_eq!(Some(&rows.iter().sum()), parameter.shape.first(), "rows of {name}");
            parameter.projections = rows.to_vec();
        }
    }

    /// Sets the multiplier of the products of the adapters' matrices.
    pub fn set_adapter_scale(&mut self, scale: f64) {
        self.adapter_scale = Some(scale);
    }

    /// Returns the multiplier of the products of the adapters' matrices; `None` without adapters.
    #[must_use]
    pub fn adapter_scale(&self) -> Option<f64> {
        self.adapter_scale
    }

    /// Returns all parameters outside the base, in the order of the flat layout.
    #[must_use]
    pub fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    /// Returns the parameters of the base, in order; none unless the model has adapters.
    #[must_use]
    pub fn base(&self) -> &[Parameter] {
        &self.base
    }

    /// Returns the parameters of the base, followed by all others.
    pub fn all(&self) -> impl Iterator<Item = &Parameter> {
        self.base.iter().chain(&self.parameters)
    }

    /// Returns the parameter with this name, in the base or outside.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Parameter> {
        self.all().find(|parameter| parameter.name == name)
    }

    /// Rounds the weights of linear layers and the embeddings to values that int8 can represent;
    /// see [`Parameter::round_to_int8`].
    ///
    /// # Errors
    /// If a weight is not finite, or the device has no memory left.
    pub fn round_to_int8(&self) -> Result<()> {
        self.all().try_for_each(Parameter::round_to_int8)
    }

    /// Returns the index of the parameter that has this tensor, if there is one outside the base.
    pub(crate) fn index_of(&self, id: TensorId) -> Option<usize> {
        self.indices.get(&id).copied()
    }

    /// Returns the number of scalars of all parameters outside the base: the length of the flat
    /// layout.
    #[must_use]
    pub fn len(&self) -> usize {
        self.total
    }

    /// Whether there are no parameters outside the base.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.parameters.is_empty()
    }

    /// Returns the device that holds the parameters.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Returns a copy of the current values in the flat layout, f32, `(total,)`.
    ///
    /// # Errors
    /// If the device has no memory left.
    pub fn flat(&self) -> Result<Tensor> {
        self.part(0..self.total)
    }

    /// Returns a copy of the current values in `range` of the flat layout, f32, `(range.len(),)`.
    ///
    /// # Errors
    /// If the device has no memory left.
    pub fn part(&self, range: Range<usize>) -> Result<Tensor> {
        crate::device::check(&self.device)?;
        let parts = self.within(&range).map(|(parameter, within)| {
            let values = parameter.var.as_detached_tensor().flatten_all()?;
            values.narrow(0, within.start, within.len())
        });
        match parts.collect::<Result<Vec<_>>>()?.as_slice() {
            [] => Tensor::zeros(0, DType::F32, &self.device),
            // `cat` of a single tensor makes no copy, and `copy` would copy the whole storage that
            // this tensor is a part of.
            [one] => one.force_contiguous(),
            several => Tensor::cat(several, 0),
        }
    }

    /// Sets every parameter from values in the flat layout.
    ///
    /// # Errors
    /// If `flat` does not have as many elements as the layout.
    pub fn set_flat(&self, flat: &Tensor) -> Result<()> {
        if flat.elem_count() != self.total {
            candle_core::bail!("{} values do not fit {} parameters", flat.elem_count(), self.total);
        }
        self.set_part(0, flat)
    }

    /// Sets values in the flat layout, from index `start` on.
    ///
    /// # Errors
    /// If the layout has fewer than `values` elements from `start` on.
    pub fn set_part(&self, start: usize, values: &Tensor) -> Result<()> {
        self.set_where(start, values, |_| true)
    }

    /// Sets values in the flat layout from index `start` on, like [`ParameterStore::set_part`], but
    /// leaves frozen parameters unchanged; meant for updates.
    ///
    /// # Errors
    /// Errors of [`ParameterStore::set_part`].
    pub fn set_trained(&self, start: usize, values: &Tensor) -> Result<()> {
        self.set_where(start, values, |parameter| !parameter.is_frozen())
    }

    fn set_where(
        &self,
        start: usize,
        values: &Tensor,
        is_set: impl Fn(&Parameter) -> bool,
    ) -> Result<()> {
        crate::device::check(&self.device)?;
        let range = start..start + values.elem_count();
        if range.end > self.total {
            candle_core::bail!(
                "values for the range {range:?} go past the end of the {} parameters",
                self.total
            );
        }
        for (parameter, within) in self.within(&range).filter(|(parameter, _)| is_set(parameter)) {
            let from = parameter.offset + within.start - start;
            let part = values.narrow(0, from, within.len())?;
            // On the host, a part is written in place. On other devices, the whole parameter is
            // replaced.
            if self.device.is_cpu() {
                let part = crate::host::Host::new(&part)?;
                let part = part.elements::<f32>()?;
                crate::host::update_elements(parameter.var.as_tensor(), |all| {
                    all[within.clone()].copy_from_slice(part);
                    Ok(())
                })?;
                continue;
            }
            let whole = if within.len() == parameter.len() {
                part
            } else {
                let old = parameter.var.as_detached_tensor().flatten_all()?;
                let after = old.narrow(0, within.end, parameter.len() - within.end)?;
                Tensor::cat(&[&old.narrow(0, 0, within.start)?, &part, &after], 0)?
            };
            parameter.var.set(&whole.reshape(parameter.shape())?.contiguous()?)?;
        }
        Ok(())
    }

    /// Returns the parameters that overlap `range` of the flat layout, each with the range of its
    /// own elements that are in `range`.
    pub(crate) fn within(
        &self,
        range: &Range<usize>,
    ) -> impl Iterator<Item = (&Parameter, Range<usize>)> {
        let range = range.clone();
        self.parameters.iter().filter_map(move |parameter| {
            let first = parameter.offset.max(range.start);
            let end = (parameter.offset + parameter.len()).min(range.end);
            (first < end).then(|| (parameter, first - parameter.offset..end - parameter.offset))
        })
    }
}

/// Returns the number of scalars of a tensor of this shape; [`usize::MAX`] if a `usize` cannot hold
/// it, as can happen with a damaged configuration.
#[must_use]
pub fn scalars(shape: &[usize]) -> usize {
    shape.iter().fold(1, |count, &size| count.saturating_mul(size))
}
