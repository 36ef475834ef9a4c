//! Linear layers with everything that follows the matrix product, computed while its result is in
//! the cache: `residual + dropout(activation(x Wᵀ + b))`.

use crate::composed::{self, on_tape};
use crate::device::kernels;
use crate::float::{Float, vectorised};
use crate::host::{Host, for_float};
use crate::packed_weights::{PackedWeight, PackedWeights};
use crate::parallel::{ROWS, add, add_rows, column_sums, combined};
use crate::products::{Matrix, Right, Threads, is_held, product, product_onto, product_then};
use crate::profile::{even, region};
use crate::shared::{Shared, filled};
use crate::spec::{Activation, Dropout, LinearSpec, for_activation};
use crate::tape::{Adjoints, SavedTensor, Slot, Tape, is_fused};
use candle_core::{Result, Tensor};
use rayon::prelude::*;

/// Computes `residual + dropout(activation(x Wᵀ + b))`; with a residual, this is the end of a
/// sublayer (Vaswani et al. 2017, section 5.4). A constant weight is allowed to be in bf16 although
/// x is in f32: it is converted to f32 in parts.
///
/// # Shapes
/// `x (N, I)`, `weight (O, I)`, `bias (O,)`, `residual (N, O)` → `(N, O)`.
///
/// # Errors
/// If the shapes disagree, or O is 0.
pub fn linear(
    tape: Option<&Tape>,
    x: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    residual: Option<&Tensor>,
    spec: &LinearSpec,
) -> Result<Tensor> {
    run(tape, None, Node::new(x, weight, bias, residual, spec))
}

/// Computes [`linear`] for inference: the weight is packed (copied to the kernel's order) on first
/// use, and stays packed in `packs`.
///
/// # Shapes
/// The shapes of [`linear`].
///
/// # Errors
/// The errors of [`linear`].
pub fn packed_linear(
    packs: &PackedWeights,
    x: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    residual: Option<&Tensor>,
    spec: &LinearSpec,
) -> Result<Tensor> {
    run(None, Some(packs), Node::new(x, weight, bias, residual, spec))
}

fn run(tape: Option<&Tape>, packs: Option<&PackedWeights>, node: Node) -> Result<Tensor> {
    let Node { x, weight, bias, residual, spec } = &node;
    if !is_fused(tape, &node.computed())? {
        let weight = match packs {
            Some(packs) => &packs.converted(weight, x.dtype())?,
            None => weight,
        };
        return node.elsewhere(tape, weight);
    }
    let ((rows, width), (outputs, weight_width)) = (x.dims2()?, weight.dims2()?);
    if outputs == 0 {
        candle_core::bail!("linear: a weight of {:?} has no rows", weight.shape());
    }
    if width != weight_width
        || bias.as_ref().is_some_and(|bias| bias.elem_count() != outputs)
        || residual.as_ref().is_some_and(|residual| residual.dims() != [rows, outputs])
    {
        candle_core::bail!(
            "linear: shapes do not fit together: input {:?}, weight {:?}, bias {:?}, residual {:?}",
            x.shape(),
            weight.shape(),
            bias.as_ref().map(Tensor::shape),
            residual.as_ref().map(Tensor::shape)
        );
    }
    let packed = packs.map(|packs| packs.get(weight, spec.products)).transpose()?.flatten();
    crate::profile::time("linear", || for_float!(&node.x, T => forward::<T>(tape, packed, node)))
}

fn forward<T: Float>(
    tape: Option<&Tape>,
    packed: Option<PackedWeight>,
    node: Node,
) -> Result<Tensor> {
    let Node { x, weight, bias, residual, spec } = &node;
    let ((rows, width), outputs) = (x.dims2()?, weight.dim(0)?);
    let (x_host, weight_host) = (Host::new(x)?, Host::new(weight)?);
    let right = match &packed {
        Some(packed) => packed.right(),
        None => Right::from_row_major(&weight_host, width, true)?,
    };
    let (bias_host, residual_host) =
        (bias.as_ref().map(Host::new).transpose()?, residual.as_ref().map(Host::new).transpose()?);
    let bias_values = bias_host.as_ref().map(Host::elements::<T>).transpose()?;
    let residual_values = residual_host.as_ref().map(Host::elements::<T>).transpose()?;
    let keeps_slopes = tape.is_some() && node.keeps_slopes();
    let mut slopes = vec![T::default(); if keeps_slopes { rows * outputs } else { 0 }];
    let shared_slopes = Shared::new(&mut slopes);
    let finish = |row: usize, out: &mut [T]| {
        let first = row * outputs;
        if let Some(bias) = bias_values {
            add_bias(out, bias);
        }
        if spec.activation != Activation::Identity || spec.dropout.is_active() {
            let range = if keeps_slopes { first..first + out.len() } else { 0..0 };
            // SAFETY: each call has its own rows, and `slopes` outlives the product.
            let slopes = unsafe { shared_slopes.range(range) };
            activate(out, slopes, first, spec.activation, spec.dropout);
        }
        if let Some(residual) = residual_values {
            add(out, &residual[first..first + out.len()]);
        }
    };
    let left = (x_host.elements::<T>()?, Matrix::rows(width));
    let out = product_then((rows, width, outputs), left, right, spec.products, Some(&finish));
    let out = Tensor::from_vec(out, (rows, outputs), x.device())?;
    if let Some(tape) = tape {
        // The backward pass of relu needs the result: the derivative is 1 where the result is
        // positive.
        let result = (spec.activation == Activation::Relu && !keeps_slopes).then(|| out.clone());
        let (weight, bias, residual) =
            (weight.clone(), bias.as_ref().map(Slot::from), residual.as_ref().map(Slot::from));
        // The input is needed only for the gradient with respect to the weight, which is not
        // computed if the weight is constant.
        let kept = tape.needs(&weight).then(|| tape.keep(x));
        let back = Back { x: x.into(), kept, weight, bias, residual, spec: *spec };
        tape.record::<T>("linear", &node.inputs(), &out, move |adjoint, adjoints| match &result {
            Some(result) => {
                back.run(Slopes::Sign(Host::new(result)?.elements::<T>()?), adjoint, adjoints)
            }
            None => back.run(Slopes::Kept(&slopes), adjoint, adjoints),
        })?;
    }
    Ok(out)
}

/// The inputs and settings of a layer.
struct Node {
    x: Tensor,
    weight: Tensor,
    bias: Option<Tensor>,
    residual: Option<Tensor>,
    spec: LinearSpec,
}

impl Node {
    fn new(
        x: &Tensor,
        weight: &Tensor,
        bias: Option<&Tensor>,
        residual: Option<&Tensor>,
        spec: &LinearSpec,
    ) -> Self {
        Self {
            x: x.clone(),
            weight: weight.clone(),
            bias: bias.cloned(),
            residual: residual.cloned(),
            spec: *spec,
        }
    }

    /// Whether the forward pass must keep the derivatives of the activation, because the backward
    /// pass cannot compute them from the result.
    fn keeps_slopes(&self) -> bool {
        match self.spec.activation {
            Activation::Identity => false,
            Activation::Relu => self.residual.is_some(),
            Activation::Gelu
            | Activation::GeluTanh
            | Activation::Swish
            | Activation::QuickGelu
            | Activation::Tanh
            | Activation::Sigmoid => true,
        }
    }

    fn inputs(&self) -> Vec<&Tensor> {
        [&self.x, &self.weight].into_iter().chain(&self.bias).chain(&self.residual).collect()
    }

    /// Computes the layer with `weight` in place of `self.weight`, by the device's kernels if there
    /// are any, otherwise by Candle's operations.
    fn elsewhere(&self, tape: Option<&Tape>, weight: &Tensor) -> Result<Tensor> {
        let Self { x, bias, residual, spec, .. } = self;
        let (rows, outputs) = (x.dim(0)?, weight.dim(0)?);
        crate::device::check_count(x.device(), "the result of a layer", rows * outputs)?;
        let (bias, residual) = (bias.as_ref(), residual.as_ref());
        let inputs: Vec<&Tensor> = [x, weight].into_iter().chain(bias).chain(residual).collect();
        let kernels = kernels(tape.is_some(), &inputs)?;
        kernels.linear(tape, x, weight, bias, residual, spec).unwrap_or_else(|| {
            on_tape(tape, "linear", &inputs, |v| {
                let residual = residual.map(|_| &v[v.len() - 1]);
                composed::linear(&v[0], &v[1], bias.map(|_| &v[2]), residual, spec)
            })
        })
    }

    /// Returns the inputs that have the type of the computation: all of them, except a weight that
    /// is held in bf16.
    fn computed(&self) -> Vec<&Tensor> {
        let weight = Some(&self.weight).filter(|weight| !is_held(weight));
        [&self.x].into_iter().chain(weight).chain(&self.bias).chain(&self.residual).collect()
    }
}

/// Source of the derivative of the activation at each element, for the backward pass.
#[derive(Clone, Copy)]
pub(crate) enum Slopes<'a, T> {
    /// The derivatives themselves; empty if there is no activation.
    Kept(&'a [T]),
    /// The results of relu, whose signs determine the derivatives.
    Sign(&'a [T]),
}

impl<'a, T> Slopes<'a, T> {
    /// Restricts the source to a range of elements.
    fn narrow(self, range: std::ops::Range<usize>) -> Self {
        match self {
            Self::Kept(slopes) => Self::Kept(slopes.get(range).unwrap_or_default()),
            Self::Sign(results) => Self::Sign(&results[range]),
        }
    }
}

/// Data of a layer that its backward pass needs.
struct Back {
    x: Slot,
    kept: Option<SavedTensor>,
    weight: Tensor,
    bias: Option<Slot>,
    residual: Option<Slot>,
    spec: LinearSpec,
}

impl Back {
    fn run<T: Float>(
        &self,
        slopes: Slopes<'_, T>,
        adjoint: Vec<T>,
        adjoints: &mut Adjoints<'_>,
    ) -> Result<()> {
        let LinearSpec { activation, dropout, products } = self.spec;
        let (outputs, inputs) = self.weight.dims2()?;
        let rows = adjoint.len() / outputs;
        let (owned, sums) = if activation == Activation::Identity && !dropout.is_active() {
            (None, self.bias.as_ref().map(|_| column_sums(&adjoint, outputs)))
        } else {
            // SAFETY: `deactivated` writes every row.
            let (owned, sums) =
                unsafe { filled(adjoint.len(), |to| self.deactivated(slopes, &adjoint, to)) };
            (Some(owned), Some(sums))
        };
        // From here on, `adjoint` is needed only for the residual.
        let adjoint = if owned.is_some() && self.residual.is_none() { Vec::new() } else { adjoint };
        let grad = owned.as_deref().unwrap_or(&adjoint);
        let grad_at = Matrix::rows(outputs);
        self.add_to_weight(grad, rows, adjoints)?;
        let weight_host = Host::new(&self.weight)?;
        let weight = Right::from_row_major(&weight_host, inputs, false)?;
        if let (Some(bias), Some(sums)) = (self.bias, sums) {
            adjoints.give(bias, sums)?;
        }
        let (shape, grad) = ((rows, outputs, inputs), (grad, grad_at));
        if adjoints.is_first(self.x) {
            adjoints.give(self.x, product_then(shape, grad, weight, products, None))?;
        } else {
            adjoints.add_with(self.x, |out: &mut [T], write| {
                product_onto(shape, grad, weight, (out, Matrix::rows(inputs)), write, products);
                Ok(())
            })?;
        }
        match self.residual {
            Some(residual) => adjoints.give(residual, adjoint),
            None => Ok(()),
        }
    }

    /// Adds the gradient with respect to the weight, unless the weight is constant.
    fn add_to_weight<T: Float>(
        &self,
        grad: &[T],
        rows: usize,
        adjoints: &mut Adjoints<'_>,
    ) -> Result<()> {
        let Some(kept) = &self.kept else { return Ok(()) };
        let (outputs, inputs) = self.weight.dims2()?;
        adjoints.add_with(&self.weight, |out: &mut [T], write| {
            let (shape, x) = ((outputs, rows, inputs), kept.value()?);
            let (x, at) = (Host::new(&x)?, Matrix::rows(inputs));
            product(
                shape,
                (grad, Matrix::rows(outputs).transposed()),
                (x.elements::<T>()?, at),
                (out, at),
                write,
                (self.spec.products, Threads::All),
            );
            Ok(())
        })
    }

    /// Writes to `to` the adjoint of `x Wᵀ + b` (the gradient of the loss with respect to it), and
    /// returns the sums of its columns. `adjoint` is the adjoint of the layer's result.
    fn deactivated<T: Float>(&self, slopes: Slopes<'_, T>, adjoint: &[T], to: Shared<T>) -> Vec<T> {
        let dropout = self.spec.dropout;
        let (width, piece) = (self.weight.dims()[0], ROWS * self.weight.dims()[0]);
        let sums = |number: usize| {
            let mut sums = vec![T::default(); width];
            let (start, end) = (number * piece, adjoint.len().min((number + 1) * piece));
            let some_rows = (CACHED / width.max(1)).max(1) * width;
            for first in (start..end).step_by(some_rows) {
                let range = first..end.min(first + some_rows);
                // SAFETY: each task has its own rows, which are initialised before they are read.
                let grad = unsafe {
                    to.write(first, &adjoint[range.clone()]);
                    to.range(range.clone())
                };
                deactivate(slopes.narrow(range), grad, first, dropout);
                add_rows(grad, &mut sums);
            }
            sums
        };
        let pieces = adjoint.len().div_ceil(piece.max(1));
        let partial = region(even(pieces), || {
            (0..pieces).into_par_iter().with_max_len(1).map(sums).collect()
        });
        combined(partial, width)
    }
}

/// Number of elements, rounded to whole rows, that stay in the first-level cache while several
/// operations are applied to them one after the other.
const CACHED: usize = 4 * 1024;

vectorised! {
    fn add_bias<T>(out: &mut [T], bias: &[T]) {
        for row in out.chunks_exact_mut(bias.len()) {
            for (out, bias) in row.iter_mut().zip(bias) {
                *out += *bias;
            }
        }
    }
}

vectorised! {
    /// Applies activation and dropout to `out`; `first` is the index of its first element in the
    /// dropout mask. Unless `slopes` is empty, writes the derivatives of the activation to it.
    fn activate<T>(
        out: &mut [T],
        slopes: &mut [T],
        first: usize,
        activation: Activation,
        dropout: Dropout,
    ) {
        for_activation!(activation, ACTIVATION => {
            if slopes.is_empty() {
                for value in out.iter_mut() {
                    *value = ACTIVATION.value(*value);
                }
            } else {
                for (value, slope) in out.iter_mut().zip(slopes) {
                    (*value, *slope) = ACTIVATION.value_and_derivative(*value);
                }
            }
        });
        if dropout.is_active() {
            let factor = dropout.kernel::<T>();
            for (i, value) in out.iter_mut().enumerate() {
                *value *= factor((first + i) as u32);
            }
        }
    }
}

vectorised! {
    /// Replaces `grad`, the adjoint of the result of [`activate`], by the adjoint of the
    /// activation's input. `first` is the index of the first element in the dropout mask.
    fn deactivate<T>(slopes: Slopes<'_, T>, grad: &mut [T], first: usize, dropout: Dropout) {
        match slopes {
            Slopes::Kept(slopes) => {
                for (grad, slope) in grad.iter_mut().zip(slopes) {
                    *grad *= *slope;
                }
            }
            Slopes::Sign(results) => {
                for (grad, result) in grad.iter_mut().zip(results) {
                    *grad *= Activation::Relu.derivative(*result);
                }
            }
        }
        if dropout.is_active() {
            let factor = dropout.kernel::<T>();
            for (i, grad) in grad.iter_mut().enumerate() {
                *grad *= factor((first + i) as u32);
            }
        }
    }
}
