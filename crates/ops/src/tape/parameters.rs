//! Parameters in a fixed order, each with its full name.
//!
//! Candle's `VarMap` is a hash map whose order changes from process to process; a flat layout needs
//! one order, and with it clipping, averaging and the optimizer are single passes.

use crate::products::int8::Int8Matrix;
use candle_core::{DType, Device, Result, Tensor, TensorId, Var};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A trainable tensor, kept in f32.
#[derive(Debug, Clone)]
pub struct Parameter {
    name: String,
    shape: Vec<usize>,
    var: Var,
    offset: usize,
    /// Shared by all copies of the store.
    frozen: Arc<AtomicBool>,
    /// The bits of its share of the learning rate; shared likewise.
    rate: Arc<AtomicU64>,
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
        &self.shape
    }

    /// Where it starts in the flat layout of its store.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Number of scalars.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether it has no scalars.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether weight decay applies: matrices yes, biases and norms no.
    #[must_use]
    pub fn is_matrix(&self) -> bool {
        self.shape.len() >= 2
    }

    /// Keeps it as it is from now on: its gradient counts as zero, and no update changes it. What
    /// sets its values, as loading a checkpoint does, still does.
    pub fn freeze(&self) {
        self.frozen.store(true, Ordering::Relaxed);
    }

    /// Whether no update changes it.
    #[must_use]
    pub fn is_frozen(&self) -> bool {
        self.frozen.load(Ordering::Relaxed)
    }

    /// Has updates take this many times the learning rate for it from now on.
    pub fn set_rate(&self, rate: f64) {
        self.rate.store(rate.to_bits(), Ordering::Relaxed);
    }

    /// How many times the learning rate updates take for it: 1 unless that was set.
    #[must_use]
    pub fn rate(&self) -> f64 {
        f64::from_bits(self.rate.load(Ordering::Relaxed))
    }

    /// Sets its values, in row-major order.
    ///
    /// # Errors
    /// When they do not fill the shape, or the device has no memory left.
    pub fn set(&self, values: Vec<f32>) -> Result<()> {
        crate::device::check(self.var.device())?;
        self.var.set(&Tensor::from_vec(values, self.shape(), self.var.device())?)
    }

    /// The variable itself, tracked by autodiff.
    #[must_use]
    pub fn var(&self) -> &Var {
        &self.var
    }
}

/// Where weight decay applies, in a range of the flat layout.
type Matrices = (Range<usize>, Tensor);

/// Parameters in the order in which the model made them.
#[derive(Debug, Clone)]
pub struct ParameterStore {
    parameters: Vec<Parameter>,
    indices: HashMap<TensorId, usize>,
    total: usize,
    device: Device,
    is_outline: bool,
    /// What [`ParameterStore::matrices`] has last made, with its range.
    matrices: Arc<Mutex<Option<Matrices>>>,
}

impl ParameterStore {
    /// An empty store for a device.
    #[must_use]
    pub fn new(device: &Device) -> Self {
        Self {
            parameters: Vec::new(),
            indices: HashMap::new(),
            total: 0,
            device: device.clone(),
            is_outline: false,
            matrices: Arc::default(),
        }
    }

    /// An empty store for names and shapes alone: no memory is taken for the values of what is
    /// added, and nothing can be computed with it.
    #[must_use]
    pub fn outline(device: &Device) -> Self {
        Self { is_outline: true, ..Self::new(device) }
    }

    /// Whether the parameters are to have no values.
    #[must_use]
    pub fn is_outline(&self) -> bool {
        self.is_outline
    }

    /// Adds a parameter with its initial values, which an outline ignores, and returns its tensor,
    /// tracked.
    ///
    /// # Errors
    /// When the name is taken, the values do not fill the shape, or the device has no memory left.
    pub fn add(&mut self, name: &str, shape: &[usize], values: Vec<f32>) -> Result<Tensor> {
        if self.get(name).is_some() {
            candle_core::bail!("parameter {name} exists already");
        }
        // Gradients and the optimizer's state are flat, as long as all parameters together.
        let total = self.total + shape.iter().product::<usize>();
        crate::device::check_count(&self.device, "the parameters", total)?;
        let values = if self.is_outline {
            Tensor::zeros(0, DType::F32, &self.device)?
        } else {
            Tensor::from_vec(values, shape, &self.device)?
        };
        let var = Var::from_tensor(&values)?;
        let tensor = var.as_tensor().clone();
        let (offset, shape) = (self.total, shape.to_vec());
        self.matrices = Arc::default();
        self.total = total;
        self.indices.insert(tensor.id(), self.parameters.len());
        let (frozen, rate) = (Arc::default(), Arc::new(AtomicU64::new(1.0_f64.to_bits())));
        self.parameters.push(Parameter { name: name.to_owned(), shape, var, offset, frozen, rate });
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

    /// Rounds the weights of linear layers and the embeddings to what int8 can hold, each row with a
    /// scale of its own; see [`Int8Matrix`].
    ///
    /// # Errors
    /// When a weight is not finite, or the device has no memory left.
    pub fn round_to_int8(&self) -> Result<()> {
        for parameter in
            self.parameters.iter().filter(|one| Int8Matrix::holds(one.name(), one.shape()))
        {
            let values: Vec<f32> = parameter.var().as_tensor().flatten_all()?.to_vec1()?;
            let rounded = Int8Matrix::of(&values, parameter.shape()[1]);
            if !rounded.scales().iter().all(|scale| scale.is_finite()) {
                candle_core::bail!("{} has a weight that is not finite", parameter.name());
            }
            parameter.set(rounded.to_f32())?;
        }
        Ok(())
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
        self.part(0..self.total)
    }

    /// The current values in `range` of the flat layout: a copy, f32, `(range.len(),)`.
    ///
    /// # Errors
    /// When the device has no memory left.
    pub fn part(&self, range: Range<usize>) -> Result<Tensor> {
        crate::device::check(&self.device)?;
        let parts = self.within(&range).map(|(parameter, within)| {
            let values = parameter.var.as_detached_tensor().flatten_all()?;
            values.narrow(0, within.start, within.len())
        });
        match parts.collect::<Result<Vec<_>>>()?.as_slice() {
            [] => Tensor::zeros(0, DType::F32, &self.device),
            // Of one alone `cat` makes no copy, and `copy` one of all the storage under the view.
            [one] => one.force_contiguous(),
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
        self.set_part(0, flat)
    }

    /// Sets the flat layout from `start` on.
    ///
    /// # Errors
    /// When there are more values than the layout has from there on.
    pub fn set_part(&self, start: usize, values: &Tensor) -> Result<()> {
        self.set_where(start, values, |_| true)
    }

    /// The same as an update does it: frozen parameters stay as they are.
    ///
    /// # Errors
    /// As [`ParameterStore::set_part`].
    pub fn set_trained(&self, start: usize, values: &Tensor) -> Result<()> {
        self.set_where(start, values, |parameter| !parameter.is_frozen())
    }

    /// The gradient in `range` of the flat layout with zeros for frozen parameters, so that they
    /// have no part in its norm.
    ///
    /// # Shapes
    /// `gradient (range.len(),)`, f32 → the same.
    ///
    /// # Errors
    /// When the device has no memory left.
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

    fn set_where(
        &self,
        start: usize,
        values: &Tensor,
        is_set: impl Fn(&Parameter) -> bool,
    ) -> Result<()> {
        crate::device::check(&self.device)?;
        let range = start..start + values.elem_count();
        if range.end > self.total {
            candle_core::bail!("values for {range:?} of {} parameters", self.total);
        }
        for (parameter, within) in self.within(&range).filter(|(parameter, _)| is_set(parameter)) {
            let from = parameter.offset + within.start - start;
            let part = values.narrow(0, from, within.len())?;
            // On the host a part is written in place; elsewhere the whole parameter is made again.
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

    /// 1 for each element of a matrix in `range` of the flat layout, and 0 for the others: where
    /// weight decay applies. Kept for the next step, which asks for the same range.
    ///
    /// # Errors
    /// When the device has no memory left.
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

    /// How many times the learning rate each element in `range` of the flat layout takes; none where
    /// all take it once.
    ///
    /// # Errors
    /// When the device has no memory left.
    pub fn rates(&self, range: Range<usize>) -> Result<Option<Tensor>> {
        if self.parameters.iter().all(|parameter| parameter.rate() == 1.0) {
            return Ok(None);
        }
        let of = |(parameter, within): (&Parameter, Range<usize>)| {
            std::iter::repeat_n(parameter.rate() as f32, within.len())
        };
        let values: Vec<f32> = self.within(&range).flat_map(of).collect();
        Ok(Some(Tensor::from_vec(values, range.len(), &self.device)?))
    }

    fn new_matrices(&self, range: Range<usize>) -> Result<Tensor> {
        let of = |(parameter, within): (&Parameter, Range<usize>)| {
            std::iter::repeat_n(if parameter.is_matrix() { 1f32 } else { 0.0 }, within.len())
        };
        let values: Vec<f32> = self.within(&range).flat_map(of).collect();
        Tensor::from_vec(values, range.len(), &self.device)
    }

    /// The parameters that `range` of the flat layout meets, each with its elements in there.
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
