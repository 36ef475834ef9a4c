//! Linear layer as one operation of Candle's graph: its product, and what follows.
//!
//! As two operations, the gradient of the product would be added to zeros, and the product would be
//! kept for the backward pass where only an activation needs it.

use super::epilogue::{Epilogue, epilogue};
use super::launch::{computes, no_host};
use super::product::Product;
use crate::spec::{Activation, LinearSpec};
use candle_core::op::BackpropOp;
use candle_core::{
    CpuStorage, CudaStorage, CustomOp2, CustomOp3, DType, Layout, Result, Shape, Storage, Tensor,
    bail,
};
use std::sync::OnceLock;

/// Computes `residual + dropout(activation(x · weightᵀ + bias))`; `None` for types and
/// nonlinearities without a kernel.
///
/// # Shapes
/// `x (N, I)`, `weight (O, I)`, `bias (O,)`, `residual (N, O)` → `(N, O)`.
pub(crate) fn linear(
    x: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    residual: Option<&Tensor>,
    spec: &LinearSpec,
) -> Option<Result<Tensor>> {
    let computed = || {
        let (x, weight) = (x.contiguous()?, weight.contiguous()?);
        let is_identity = spec.activation == Activation::Identity && !spec.dropout.is_active();
        match (bias, residual) {
            (None, None) if is_identity => x.apply_op2(&weight, Product::default()),
            (None, None) => x.apply_op2(&weight, Linear::new(spec, false)),
            (Some(bias), None) => {
                let bias = bias.to_dtype(DType::F32)?.contiguous()?;
                x.apply_op3(&weight, &bias, Linear::new(spec, true))
            }
            (None, Some(residual)) => {
                x.apply_op3(&weight, &residual.contiguous()?, Linear::new(spec, false))
            }
            // An operation of Candle's has no more than three inputs.
            (Some(bias), Some(residual)) => {
                let product = x.apply_op2(&weight, Product::default())?;
                epilogue(&product, bias, residual, spec)
            }
        }
    };
    let is_here = computes(x.dtype()) && computes(weight.dtype());
    (is_here && spec.activation != Activation::Sigmoid).then(computed)
}

struct Linear {
    product: Product,
    epilogue: Epilogue,
    /// Whether the third input is the bias, and not the residual.
    has_bias: bool,
    /// The product, if the activation is differentiated there.
    before: OnceLock<Tensor>,
}

impl Linear {
    fn new(spec: &LinearSpec, has_bias: bool) -> Self {
        let epilogue = Epilogue { activation: spec.activation, dropout: spec.dropout };
        Self { product: Product::default(), epilogue, has_bias, before: OnceLock::new() }
    }

    fn forward(
        &self,
        x: (&CudaStorage, &Layout),
        weight: (&CudaStorage, &Layout),
        third: Option<(&CudaStorage, &Layout)>,
    ) -> Result<(CudaStorage, Shape)> {
        let (product, shape) = self.product.forward(x, weight)?;
        let layout = Layout::contiguous(&shape);
        let (bias, residual) = if self.has_bias { (third, None) } else { (None, third) };
        let out = self.epilogue.forward((&product, &layout), bias, residual)?;
        if self.epilogue.activation != Activation::Identity {
            let product = Storage::Cuda(product);
            let product = Tensor::from_storage(product, shape, BackpropOp::none(), false);
            // Set once, since an operation computes once.
            let _ = self.before.set(product);
        }
        Ok(out)
    }

    /// Computes the gradients of `x`, the weight and the bias; the latter two only if they are not
    /// added to the flat buffer.
    fn back(
        &self,
        x: &Tensor,
        weight: &Tensor,
        bias: Option<&Tensor>,
        gradient: &Tensor,
    ) -> Result<(Tensor, Option<Tensor>, Option<Tensor>)> {
        // Without an activation, the product has no part in its gradient.
        let before = match self.epilogue.activation {
            Activation::Identity => gradient,
            _ => match self.before.get() {
                Some(before) => before,
                None => bail!("a linear layer was never computed"),
            },
        };
        let (of_product, of_bias) = self.epilogue.back(before, bias, gradient)?;
        let (of_x, of_weight) = self.product.back(x, weight, &of_product)?;
        Ok((of_x, of_weight, of_bias))
    }
}

impl CustomOp2 for Linear {
    fn name(&self) -> &'static str {
        "linear layer"
    }

    fn cpu_fwd(
        &self,
        _: &CpuStorage,
        _: &Layout,
        _: &CpuStorage,
        _: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        no_host("linear layer")
    }

    fn cuda_fwd(
        &self,
        x: &CudaStorage,
        layout: &Layout,
        weight: &CudaStorage,
        weight_layout: &Layout,
    ) -> Result<(CudaStorage, Shape)> {
        self.forward((x, layout), (weight, weight_layout), None)
    }

    fn bwd(
        &self,
        x: &Tensor,
        weight: &Tensor,
        _: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let (of_x, of_weight, _) = self.back(x, weight, None, gradient)?;
        Ok((Some(of_x), of_weight))
    }
}

impl CustomOp3 for Linear {
    fn name(&self) -> &'static str {
        "linear layer"
    }

    fn cpu_fwd(
        &self,
        _: &CpuStorage,
        _: &Layout,
        _: &CpuStorage,
        _: &Layout,
        _: &CpuStorage,
        _: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        no_host("linear layer")
    }

    fn cuda_fwd(
        &self,
        x: &CudaStorage,
        layout: &Layout,
        weight: &CudaStorage,
        weight_layout: &Layout,
        third: &CudaStorage,
        third_layout: &Layout,
    ) -> Result<(CudaStorage, Shape)> {
        self.forward((x, layout), (weight, weight_layout), Some((third, third_layout)))
    }

    fn bwd(
        &self,
        x: &Tensor,
        weight: &Tensor,
        third: &Tensor,
        _: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let bias = self.has_bias.then_some(third);
        let (of_x, of_weight, of_bias) = self.back(x, weight, bias, gradient)?;
        let of_third = if self.has_bias { of_bias } else { Some(gradient.clone()) };
        Ok((Some(of_x), of_weight, of_third))
    }
}
