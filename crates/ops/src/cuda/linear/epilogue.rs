//! Epilogue of a linear layer, which follows its matrix product: bias, activation, dropout and
//! residual.

use crate::cuda::launch::{Argument, address_of, empty, launch, suffix, walking_in_pieces, word};
use crate::cuda::row_sums::RowBlocks;
use crate::spec::{Activation, Dropout};
use candle_core::{D, DType, Result, Tensor, bail};

#[derive(Debug, Clone, Copy)]
pub(in crate::cuda) struct Epilogue {
    pub(in crate::cuda) activation: Activation,
    pub(in crate::cuda) dropout: Dropout,
}

impl Epilogue {
    /// Whether the epilogue has no activation and no dropout: at most a bias and a residual.
    pub(in crate::cuda) fn is_identity(&self) -> bool {
        self.activation == Activation::Identity && !self.dropout.is_active()
    }

    /// Returns the arguments of the kernels for activation and dropout.
    fn numbers(&self) -> [Argument; 4] {
        let [key, threshold, kept] = self.dropout.arguments();
        [(self.activation as u32).into(), key, threshold, kept]
    }

    /// Computes `residual + dropout(activation(product + bias))`; the activation must have a
    /// kernel.
    ///
    /// # Shapes
    /// `product (N, D)`, `bias (D,)` in f32, `residual` like `product` → the shape of `product`.
    pub(in crate::cuda) fn forward(
        &self,
        product: &Tensor,
        bias: Option<&Tensor>,
        residual: Option<&Tensor>,
    ) -> Result<Tensor> {
        let (count, width) = (product.elem_count(), product.dim(D::Minus1)?);
        if let Some(bias) = bias
            && (bias.elem_count() != width || bias.dtype() != DType::F32)
        {
            bail!("a bias of {:?} does not fit rows of {width}, or is not f32", bias.shape());
        }
        if let Some(residual) = residual
            && (residual.shape() != product.shape() || residual.dtype() != product.dtype())
        {
            bail!(
                "a residual of {:?} does not fit a product of {:?}: shapes and types must be the \
                 same",
                residual.shape(),
                product.shape()
            );
        }
        let device = product.device().as_cuda_device()?;
        let residual = residual.map(Tensor::contiguous).transpose()?;
        let at = |given: Option<&Tensor>| given.map_or(Ok(0), address_of);
        let out = empty(product.shape(), product.dtype(), device)?;
        let mut arguments = vec![
            address_of(product)?.into(),
            at(bias)?.into(),
            at(residual.as_ref())?.into(),
            address_of(&out)?.into(),
            (count as u64).into(),
            word(width)?.into(),
        ];
        arguments.extend(self.numbers());
        let name = format!("epilogue_{}", suffix(product.dtype())?);
        // SAFETY: product, residual and result have `count` elements, the bias has `width`.
        unsafe {
            launch(device, &name, walking_in_pieces(count, product.dtype()), &arguments)?;
        }
        Ok(out)
    }

    /// Computes the gradient with respect to the product. If there is a bias, also sums this
    /// gradient over blocks of rows; these sums add up to the gradient with respect to the bias.
    /// Without an activation, `product` is not read, so it can be any tensor of its shape and type.
    pub(in crate::cuda) fn back(
        &self,
        product: &Tensor,
        bias: Option<&Tensor>,
        gradient: &Tensor,
    ) -> Result<(Tensor, Option<Tensor>)> {
        let device = product.device().as_cuda_device()?;
        let (count, width) = (product.elem_count(), product.dim(D::Minus1)?);
        let rows = count / width.max(1);
        let of_product = match self.is_identity() {
            true => None,
            false => Some(empty(product.shape(), product.dtype(), device)?),
        };
        let blocks = RowBlocks::new(rows, width, product.dtype())?;
        let sums = bias.map(|_| blocks.parts(width, device)).transpose()?;
        let at = |tensor: Option<&Tensor>| tensor.map_or(Ok(0), address_of);
        if of_product.is_some() || sums.is_some() {
            let mut arguments: Vec<Argument> = Vec::new();
            for tensor in [Some(product), bias, Some(gradient), of_product.as_ref(), sums.as_ref()]
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
            // has `width` elements, and there is a row of sums for each block of rows.
            unsafe { launch(device, &name, blocks.grid, &arguments)? };
        }
        Ok((of_product.unwrap_or_else(|| gradient.clone()), sums))
    }
}
