//! Layer normalisation (Ba et al. 2016): `y = (x - mean) / sqrt(variance + ε) · γ + β` over the last dimension.
//!
//! Candle's own fused layer norm cuts the gradient silently; this one has a backward pass.

use crate::parallel::{ROWS, combined};
use crate::real::{Host, Real, blocked_sum, elements, for_real, is_fused, vectorised};
use candle_core::{CpuStorage, CustomOp3, Layout, Result, Shape, Tensor, WithDType};
use rayon::prelude::*;

/// Layer norm over the last dimension.
///
/// # Shapes
/// `x (N, D)`, `weight (D,)`, `bias (D,)` → `(N, D)`.
///
/// # Errors
/// When the widths differ.
pub fn layer_norm(x: &Tensor, weight: &Tensor, bias: &Tensor, epsilon: f64) -> Result<Tensor> {
    if is_fused(x) {
        return x.contiguous()?.apply_op3(&weight.contiguous()?, &bias.contiguous()?, LayerNorm { epsilon });
    }
    crate::composed::layer_norm(x, weight, bias, epsilon)
}

struct LayerNorm {
    epsilon: f64,
}

impl CustomOp3 for LayerNorm {
    fn name(&self) -> &'static str {
        "layer-norm"
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
        let width = weight_at.shape().elem_count();
        if x_at.dims().last() != Some(&width) || bias_at.shape().elem_count() != width {
            candle_core::bail!("layer norm: input {:?}, weight {:?}, bias {:?}", x_at.shape(), weight_at.shape(), bias_at.shape());
        }
        for_real!(x, T => {
            let x = elements::<T>(x, x_at)?;
            let (weight, bias) = (elements::<T>(weight, weight_at)?, elements::<T>(bias, bias_at)?);
            let mut out = vec![T::default(); x.len()];
            out.par_chunks_mut(ROWS * width).zip(x.par_chunks(ROWS * width)).for_each(|(out, x)| {
                forward_rows(x, weight, bias, out, self.epsilon);
            });
            Ok((T::to_cpu_storage_owned(out), x_at.shape().clone()))
        })
    }

    fn bwd(
        &self,
        x: &Tensor,
        weight: &Tensor,
        _bias: &Tensor,
        _res: &Tensor,
        grad: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let grad = grad.contiguous()?;
        for_real!(&grad, T => {
            let (x_host, weight_host, grad_host) = (Host::new(x), Host::new(weight), Host::new(&grad));
            let (x_values, weight_values) = (x_host.elements::<T>()?, weight_host.elements::<T>()?);
            let grad_values = grad_host.elements::<T>()?;
            let width = weight_values.len();
            let mut grad_x = vec![T::default(); x_values.len()];
            let partial: Vec<Vec<T>> = grad_x
                .par_chunks_mut(ROWS * width)
                .zip(x_values.par_chunks(ROWS * width))
                .zip(grad_values.par_chunks(ROWS * width))
                .map(|((grad_x, x), grad)| {
                    let mut sums = vec![T::default(); 2 * width];
                    backward_rows(x, weight_values, grad, grad_x, &mut sums, self.epsilon);
                    sums
                })
                .collect();
            let mut grad_weight = combined(partial, 2 * width);
            let grad_bias = grad_weight.split_off(width);
            let device = x.device();
            Ok((
                Some(Tensor::from_vec(grad_x, x.shape(), device)?),
                Some(Tensor::from_vec(grad_weight, width, device)?),
                Some(Tensor::from_vec(grad_bias, width, device)?),
            ))
        })
    }
}

/// Mean and reciprocal standard deviation of a row, in two passes.
#[inline(always)]
fn moments<T: Real>(row: &[T], epsilon: f64) -> (T, T) {
    let count = T::of(row.len() as f64);
    let mean = blocked_sum(row.len(), |i| row[i]) / count;
    let variance = blocked_sum(row.len(), |i| (row[i] - mean) * (row[i] - mean)) / count;
    (mean, T::of(1.0) / (variance + T::of(epsilon)).sqrt())
}

vectorised! {
    fn forward_rows<T>(x: &[T], weight: &[T], bias: &[T], out: &mut [T], epsilon: f64) {
        let width = weight.len();
        for (out, row) in out.chunks_exact_mut(width).zip(x.chunks_exact(width)) {
            let (mean, scale) = moments(row, epsilon);
            for i in 0..width {
                out[i] = (row[i] - mean) * scale * weight[i] + bias[i];
            }
        }
    }
}

vectorised! {
    /// `sums` holds the gradients of weight and bias, one after the other.
    fn backward_rows<T>(x: &[T], weight: &[T], grad: &[T], grad_x: &mut [T], sums: &mut [T], epsilon: f64) {
        let width = weight.len();
        let (sum_weight, sum_bias) = sums.split_at_mut(width);
        let count = T::of(width as f64);
        for ((grad_x, row), grad) in grad_x.chunks_exact_mut(width).zip(x.chunks_exact(width)).zip(grad.chunks_exact(width)) {
            let (mean, scale) = moments(row, epsilon);
            let mean_grad = blocked_sum(width, |i| grad[i] * weight[i]) / count;
            let mean_product = blocked_sum(width, |i| grad[i] * weight[i] * ((row[i] - mean) * scale)) / count;
            for i in 0..width {
                let normal = (row[i] - mean) * scale;
                grad_x[i] = scale * (grad[i] * weight[i] - mean_grad - normal * mean_product);
                sum_weight[i] += grad[i] * normal;
                sum_bias[i] += grad[i];
            }
        }
    }
}
