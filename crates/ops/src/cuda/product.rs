//! Product of a linear layer.
//!
//! As three operations of Candle's graph (conversion, transposition, product), each adds its
//! gradient to zeros, and the transposition does so out of order. As one operation, additions in
//! f32 take 3.8 instead of 4.8 ms of a step of 29 ms (base, on an H200).

use super::flat_gradients::part_of;
use super::launch::{computes, no_host};
use super::weight_gradient::weight_gradient;
use crate::composed::CountedProduct;
use candle_core::backend::BackendStorage;
use candle_core::op::BackpropOp;
use candle_core::{
    CpuStorage, CudaStorage, CustomOp2, DType, Layout, Result, Shape, Storage, Tensor, bail,
};
use std::sync::OnceLock;

/// Computes `x · weightᵀ`; the weights, and so their gradient, may be of another type. `None` for
/// types without a kernel.
///
/// # Shapes
/// `x (N, I)`, `weight (O, I)` → `(N, O)`.
pub(crate) fn product(x: &Tensor, weight: &Tensor) -> Option<Result<Tensor>> {
    let computed = || x.contiguous()?.apply_op2(&weight.contiguous()?, Product::default());
    (computes(x.dtype()) && computes(weight.dtype())).then(computed)
}

#[derive(Default)]
pub(super) struct Product {
    /// Weights in the type of the activations, for the backward pass.
    converted: OnceLock<Tensor>,
}

impl Product {
    pub(super) fn forward(
        &self,
        (x, layout): (&CudaStorage, &Layout),
        (weight, weight_layout): (&CudaStorage, &Layout),
    ) -> Result<(CudaStorage, Shape)> {
        let (rows, inputs) = layout.shape().dims2()?;
        let (outputs, width) = weight_layout.shape().dims2()?;
        if width != inputs {
            bail!("rows of {inputs} for weights of {width}");
        }
        let multiplied = |weight: &CudaStorage, weight_layout: &Layout| {
            let sizes = (1, rows, outputs, inputs);
            x.matmul(weight, sizes, layout, &weight_layout.transpose(0, 1)?)
        };
        crate::profile::count_product(rows, inputs, outputs);
        let out = if weight.dtype() == x.dtype() {
            multiplied(weight, weight_layout)?
        } else {
            let converted = weight.to_dtype(weight_layout, x.dtype())?;
            let out = multiplied(&converted, &Layout::contiguous((outputs, inputs)))?;
            let shape = (outputs, inputs);
            let converted = Storage::Cuda(converted);
            let converted = Tensor::from_storage(converted, shape, BackpropOp::none(), false);
            // Set once, since an operation computes once.
            let _ = self.converted.set(converted);
            out
        };
        Ok((out, (rows, outputs).into()))
    }

    /// Computes the gradients of `x` and the weight, unless the latter is added to the flat buffer.
    pub(super) fn back(
        &self,
        x: &Tensor,
        weight: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Tensor, Option<Tensor>)> {
        let gradient = gradient.contiguous()?;
        let of_x = gradient.times(&self.converted.get().unwrap_or(weight).detach())?;
        let of_weight = match weight.dtype() {
            DType::F32 => match part_of(weight)? {
                Some(part) => weight_gradient(&gradient, x, Some(part)).map(|_| None)?,
                None => Some(weight_gradient(&gradient, x, None)?),
            },
            other => Some(gradient.t()?.times(&x.detach())?.to_dtype(other)?),
        };
        Ok((of_x, of_weight))
    }
}

impl CustomOp2 for Product {
    fn name(&self) -> &'static str {
        "product of a layer"
    }

    fn cpu_fwd(
        &self,
        _: &CpuStorage,
        _: &Layout,
        _: &CpuStorage,
        _: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        no_host(self.name())
    }

    fn cuda_fwd(
        &self,
        x: &CudaStorage,
        layout: &Layout,
        weight: &CudaStorage,
        weight_layout: &Layout,
    ) -> Result<(CudaStorage, Shape)> {
        self.forward((x, layout), (weight, weight_layout))
    }

    fn bwd(
        &self,
        x: &Tensor,
        weight: &Tensor,
        _: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let (of_x, of_weight) = self.back(x, weight, gradient)?;
        Ok((Some(of_x), of_weight))
    }
}
