//! The linear layer with what follows it: `dropout(activation(x Wᵀ + b))` in one pass over the product.

use crate::dropout::Dropout;
use crate::matmul::{Into, Matrix, all_threads, matmul};
use crate::parallel::{CHUNK, column_sums};
use crate::real::{Host, Real, elements, for_real, is_fused, vectorised};
use candle_core::{CpuStorage, CustomOp2, CustomOp3, Layout, Result, Shape, Tensor};
use rayon::prelude::*;
use std::sync::OnceLock;

/// The nonlinearity of a feed-forward layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Activation {
    /// None.
    #[default]
    Identity,
    /// `max(x, 0)`, with derivative 0 at 0 as in PyTorch.
    Relu,
    /// `x · Φ(x)` with the exact normal distribution function (Hendrycks and Gimpel 2016).
    Gelu,
    /// `x · σ(x)` (Ramachandran et al. 2017), also called SiLU.
    Swish,
}

impl Activation {
    #[inline(always)]
    fn value<T: Real>(self, x: T) -> T {
        let (zero, one) = (T::of(0.0), T::of(1.0));
        match self {
            Self::Identity => x,
            Self::Relu => {
                if x > zero {
                    x
                } else {
                    zero
                }
            }
            Self::Gelu => x * T::of(0.5) * (one + (x * T::of(std::f64::consts::FRAC_1_SQRT_2)).erf()),
            Self::Swish => x / (one + (-x).exp()),
        }
    }

    #[inline(always)]
    fn derivative<T: Real>(self, x: T) -> T {
        let (zero, one, half) = (T::of(0.0), T::of(1.0), T::of(0.5));
        match self {
            Self::Identity => one,
            Self::Relu => {
                if x > zero {
                    one
                } else {
                    zero
                }
            }
            Self::Gelu => {
                let distribution = half * (one + (x * T::of(std::f64::consts::FRAC_1_SQRT_2)).erf());
                let density = (-half * x * x).exp() * T::of(0.398_942_280_401_432_7);
                distribution + x * density
            }
            Self::Swish => {
                let sigmoid = one / (one + (-x).exp());
                sigmoid * (one + x * (one - sigmoid))
            }
        }
    }
}

/// `dropout(activation(x Wᵀ + b))`.
///
/// # Shapes
/// `x (N, I)`, `weight (O, I)`, `bias (O,)` → `(N, O)`. Element `(n, o)` takes number `n·O + o` of the dropout mask.
///
/// # Errors
/// When the widths differ.
pub fn linear(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>, activation: Activation, dropout: Dropout) -> Result<Tensor> {
    if !is_fused(x) {
        return crate::composed::linear(x, weight, bias, activation, dropout);
    }
    let (x, weight) = (x.contiguous()?, weight.contiguous()?);
    let op = Linear { activation, dropout, before: OnceLock::new() };
    match bias {
        Some(bias) => x.apply_op3(&weight, &bias.contiguous()?, op),
        None => x.apply_op2(&weight, op),
    }
}

struct Linear {
    activation: Activation,
    dropout: Dropout,
    /// What went into the activation, where the backward pass cannot tell it from the result.
    before: OnceLock<CpuStorage>,
}

impl Linear {
    fn forward<T: Real>(
        &self,
        x: &[T],
        x_shape: &Shape,
        weight: &[T],
        weight_shape: &Shape,
        bias: Option<&[T]>,
    ) -> Result<(CpuStorage, Shape)> {
        let (rows, inputs) = x_shape.dims2()?;
        let (outputs, weight_inputs) = weight_shape.dims2()?;
        if inputs != weight_inputs || bias.is_some_and(|bias| bias.len() != outputs) {
            candle_core::bail!("linear: input {x_shape:?}, weight {weight_shape:?}, bias {:?}", bias.map(<[T]>::len));
        }
        let mut out = vec![T::default(); rows * outputs];
        matmul(
            (rows, inputs, outputs),
            (x, Matrix::rows(inputs)),
            (weight, Matrix::rows(inputs).transposed()),
            (&mut out, Matrix::rows(outputs)),
            Into::Replace,
            T::of(1.0),
            all_threads(),
        );
        let piece = (CHUNK / outputs.max(1)).max(1) * outputs.max(1);
        if let Some(bias) = bias {
            out.par_chunks_mut(piece).for_each(|out| add_bias(out, bias));
        }
        if matches!(self.activation, Activation::Gelu | Activation::Swish) {
            // A second forward of the same op would find the cell full of the same values.
            let _ = self.before.set(T::to_cpu_storage(&out));
        }
        if self.activation != Activation::Identity || self.dropout.is_active() {
            out.par_chunks_mut(piece).enumerate().for_each(|(chunk, out)| activate(out, chunk * piece, self.activation, self.dropout));
        }
        Ok((T::to_cpu_storage_owned(out), Shape::from((rows, outputs))))
    }

    /// The gradient before activation and dropout.
    fn before_activation<T: Real>(&self, result: &[T], grad: &[T]) -> Result<Vec<T>> {
        let mut out = vec![T::default(); grad.len()];
        let before = match self.before.get() {
            Some(storage) => T::cpu_storage_as_slice(storage)?,
            // Relu and identity: the result's sign tells.
            None => result,
        };
        out.par_chunks_mut(CHUNK)
            .zip(before.par_chunks(CHUNK))
            .zip(grad.par_chunks(CHUNK))
            .enumerate()
            .for_each(|(chunk, ((out, before), grad))| deactivate(before, grad, out, chunk * CHUNK, self.activation, self.dropout));
        Ok(out)
    }

    fn backward(&self, x: &Tensor, weight: &Tensor, result: &Tensor, grad: &Tensor) -> Result<[Option<Tensor>; 3]> {
        let grad = grad.contiguous()?;
        let ((rows, inputs), outputs) = (x.dims2()?, weight.dim(0)?);
        for_real!(&grad, T => {
            let (x_host, weight_host) = (Host::new(x), Host::new(weight));
            let (result_host, grad_host) = (Host::new(result), Host::new(&grad));
            let (x, weight) = (x_host.elements::<T>()?, weight_host.elements::<T>()?);
            let grad = grad_host.elements::<T>()?;
            let owned;
            let grad = if self.activation == Activation::Identity && !self.dropout.is_active() {
                grad
            } else {
                owned = self.before_activation(result_host.elements::<T>()?, grad)?;
                &owned
            };
            let mut grad_x = vec![T::default(); rows * inputs];
            let into = Into::Replace;
            matmul((rows, outputs, inputs), (grad, Matrix::rows(outputs)), (weight, Matrix::rows(inputs)), (&mut grad_x, Matrix::rows(inputs)), into, T::of(1.0), all_threads());
            let mut grad_weight = vec![T::default(); outputs * inputs];
            matmul((outputs, rows, inputs), (grad, Matrix::rows(outputs).transposed()), (x, Matrix::rows(inputs)), (&mut grad_weight, Matrix::rows(inputs)), into, T::of(1.0), all_threads());
            let device = result.device();
            Ok([
                Some(Tensor::from_vec(grad_x, (rows, inputs), device)?),
                Some(Tensor::from_vec(grad_weight, (outputs, inputs), device)?),
                Some(Tensor::from_vec(column_sums(grad, outputs), outputs, device)?),
            ])
        })
    }
}

impl CustomOp2 for Linear {
    fn name(&self) -> &'static str {
        "linear"
    }

    fn cpu_fwd(&self, x: &CpuStorage, x_at: &Layout, weight: &CpuStorage, weight_at: &Layout) -> Result<(CpuStorage, Shape)> {
        for_real!(x, T => {
            self.forward(elements::<T>(x, x_at)?, x_at.shape(), elements::<T>(weight, weight_at)?, weight_at.shape(), None)
        })
    }

    fn bwd(&self, x: &Tensor, weight: &Tensor, res: &Tensor, grad: &Tensor) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let [x, weight, _] = self.backward(x, weight, res, grad)?;
        Ok((x, weight))
    }
}

impl CustomOp3 for Linear {
    fn name(&self) -> &'static str {
        "linear"
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        x_at: &Layout,
        weight: &CpuStorage,
        weight_at: &Layout,
        bias: &CpuStorage,
        bias_at: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        for_real!(x, T => {
            let bias = elements::<T>(bias, bias_at)?;
            self.forward(elements::<T>(x, x_at)?, x_at.shape(), elements::<T>(weight, weight_at)?, weight_at.shape(), Some(bias))
        })
    }

    fn bwd(
        &self,
        x: &Tensor,
        weight: &Tensor,
        _bias: &Tensor,
        res: &Tensor,
        grad: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let [x, weight, bias] = self.backward(x, weight, res, grad)?;
        Ok((x, weight, bias))
    }
}

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
    fn activate<T>(out: &mut [T], first: usize, activation: Activation, dropout: Dropout) {
        for value in out.iter_mut() {
            *value = activation.value(*value);
        }
        if dropout.is_active() {
            let factor = dropout.kernel::<T>();
            for (i, value) in out.iter_mut().enumerate() {
                *value *= factor((first + i) as u32);
            }
        }
    }
}

vectorised! {
    fn deactivate<T>(before: &[T], grad: &[T], out: &mut [T], first: usize, activation: Activation, dropout: Dropout) {
        for ((out, before), grad) in out.iter_mut().zip(before).zip(grad) {
            *out = *grad * activation.derivative(*before);
        }
        if dropout.is_active() {
            let factor = dropout.kernel::<T>();
            for (i, out) in out.iter_mut().enumerate() {
                *out *= factor((first + i) as u32);
            }
        }
    }
}
