//! Epilogue of a matrix product: bias, activation, dropout, residual.

use super::launch::{
    Argument, address, address_of, empty, launch, no_host, room, suffix, walking_in_pieces, word,
};
use super::row_sums::{RowBlocks, sum_columns_for};
use crate::spec::{Activation, Dropout, LinearSpec};
use candle_core::backend::BackendStorage;
use candle_core::op::BackpropOp;
use candle_core::{
    CpuStorage, CudaStorage, CustomOp3, D, DType, Layout, Result, Shape, Storage, Tensor, bail,
};

/// Computes `residual + dropout(activation(product + bias))`, for types and nonlinearities with a
/// kernel.
///
/// # Shapes
/// `product (N, D)`, `bias (D,)`, `residual` as `product` → as `product`.
pub(super) fn epilogue(
    product: &Tensor,
    bias: &Tensor,
    residual: &Tensor,
    spec: &LinearSpec,
) -> Result<Tensor> {
    let epilogue = Epilogue { activation: spec.activation, dropout: spec.dropout };
    let bias = bias.to_dtype(DType::F32)?.contiguous()?;
    product.contiguous()?.apply_op3(&bias, &residual.contiguous()?, epilogue)
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Epilogue {
    pub(super) activation: Activation,
    pub(super) dropout: Dropout,
}

type Given<'a> = (&'a CudaStorage, &'a Layout);

impl Epilogue {
    /// Numeric arguments of its kernels.
    fn numbers(&self) -> [Argument; 4] {
        let [key, threshold, kept] = self.dropout.arguments();
        [(self.activation as u32).into(), key, threshold, kept]
    }

    /// Computes `dropout(activation(product + bias))`.
    pub(super) fn with_bias(&self, product: &Tensor, bias: &Tensor) -> Result<Tensor> {
        let ((product, layout), (bias, bias_layout)) =
            (product.storage_and_layout(), bias.storage_and_layout());
        let (Storage::Cuda(product), Storage::Cuda(bias)) = (&*product, &*bias) else {
            bail!("a product on another device");
        };
        let (out, shape) = self.forward((product, layout), Some((bias, bias_layout)), None)?;
        Ok(Tensor::from_storage(Storage::Cuda(out), shape, BackpropOp::none(), false))
    }

    pub(super) fn forward(
        &self,
        (product, layout): Given<'_>,
        bias: Option<Given<'_>>,
        residual: Option<Given<'_>>,
    ) -> Result<(CudaStorage, Shape)> {
        let shape = layout.shape();
        let (count, width) = (shape.elem_count(), shape.dims().last().copied().unwrap_or(1));
        if let Some((_, bias)) = bias
            && bias.shape().elem_count() != width
        {
            bail!("a bias of {:?} for rows of {width}", bias.shape());
        }
        if let Some((storage, residual)) = residual
            && (residual.shape() != shape || storage.dtype() != product.dtype())
        {
            bail!("a residual of {:?} for a product of {shape:?}", residual.shape());
        }
        let at = |given: Option<Given<'_>>| given.map_or(Ok(0), |(x, layout)| address(x, layout));
        let out = room(&product.device, product.dtype(), count)?;
        let mut arguments = vec![
            address(product, layout)?.into(),
            at(bias)?.into(),
            at(residual)?.into(),
            address(&out, &Layout::contiguous(count))?.into(),
            (count as u64).into(),
            word(width)?.into(),
        ];
        arguments.extend(self.numbers());
        let name = format!("epilogue_{}", suffix(product.dtype())?);
        // SAFETY: product, residual and result have `count` elements, the bias has `width`.
        unsafe {
            let grid = walking_in_pieces(count, product.dtype());
            launch(&product.device, &name, grid, &arguments)?;
        }
        Ok((out, shape.clone()))
    }

    /// Computes the gradients of product and bias, unless the latter is added to the flat buffer. Without an activation the product is not read:
    /// any tensor of its shape and type will do.
    pub(super) fn back(
        &self,
        product: &Tensor,
        bias: Option<&Tensor>,
        gradient: &Tensor,
    ) -> Result<(Tensor, Option<Tensor>)> {
        let device = product.device().as_cuda_device()?;
        let gradient = gradient.contiguous()?;
        let (count, width) = (product.elem_count(), product.dim(D::Minus1)?);
        let rows = count / width.max(1);
        let is_identity = self.activation == Activation::Identity && !self.dropout.is_active();
        let of_product = match is_identity {
            true => None,
            false => Some(empty(product.shape(), product.dtype(), device)?),
        };
        let blocks = RowBlocks::new(rows, width, product.dtype())?;
        let sums = bias.map(|_| blocks.parts(width, device)).transpose()?;
        let at = |tensor: Option<&Tensor>| tensor.map_or(Ok(0), address_of);
        if of_product.is_some() || sums.is_some() {
            let mut arguments: Vec<Argument> = Vec::new();
            for tensor in [Some(product), bias, Some(&gradient), of_product.as_ref(), sums.as_ref()]
            {
                arguments.push(at(tensor)?.into());
            }
            arguments.extend::<[Argument; 3]>([
                (rows as u64).into(),
                word(width)?.into(),
                blocks.at_once.into(),
            ]);
            arguments.extend(self.numbers());
            let name = format!("epilogue_back_{}", suffix(product.dtype())?);
            // SAFETY: product, gradient and result have `rows` rows of `width` elements, the bias
            // has one, and there is a row of sums for each block of rows.
            unsafe { launch(device, &name, blocks.grid, &arguments)? };
        }
        let of_bias = match (bias, sums) {
            (Some(bias), Some(sums)) => sum_columns_for(bias, &sums, 0)?,
            _ => None,
        };
        Ok((of_product.unwrap_or(gradient), of_bias))
    }
}

impl CustomOp3 for Epilogue {
    fn name(&self) -> &'static str {
        "what follows a product"
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
        no_host(self.name())
    }

    fn cuda_fwd(
        &self,
        product: &CudaStorage,
        layout: &Layout,
        bias: &CudaStorage,
        bias_layout: &Layout,
        residual: &CudaStorage,
        residual_layout: &Layout,
    ) -> Result<(CudaStorage, Shape)> {
        let (bias, residual) = ((bias, bias_layout), (residual, residual_layout));
        self.forward((product, layout), Some(bias), Some(residual))
    }

    fn bwd(
        &self,
        product: &Tensor,
        bias: &Tensor,
        _: &Tensor,
        _: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let (of_product, of_bias) = self.back(product, Some(bias), gradient)?;
        Ok((Some(of_product), of_bias, Some(gradient.clone())))
    }
}
