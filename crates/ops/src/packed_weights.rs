//! Weights packed for matrix products: copied to the order in which a kernel reads them, and kept
//! as long as the weights do not change.

use crate::host::{Host, free_elements};
use crate::products::int8::{Int8Kernel, Int8Matrix, PackedInt8};
use crate::products::{Kernel, Matrix, Packed, Packing, Products, Right, Threads};
use candle_core::{DType, Result, Tensor, TensorId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Packed weights of a model for decoding; each weight is packed when it is first used in a
/// product.
///
/// Packing costs about as much as a product with thirty rows. Without this cache, each step of
/// decoding would pay this for every weight. A packed weight takes memory in addition to the weight
/// itself. Relative to the size of the weight, it takes
///
/// - 1.5 times as much for f32 products with AMX,
/// - half as much for bf16 products by kernels with bf16 instructions,
/// - a quarter for int8 products,
/// - nothing on a processor whose kernel does not pack,
/// - as much as the weight in all other cases.
///
/// On a GPU in half precision, each weight is converted once. The converted copy takes half as much
/// memory as the weight.
///
/// Packed weights do not follow changes of the weights, so training does not use them.
///
/// [`PackedWeights::replace`] packs a weight and frees its own values, so that a model that only
/// decodes holds each weight once.
#[derive(Debug, Default)]
pub struct PackedWeights {
    is_int8: bool,
    packed: Mutex<HashMap<(TensorId, Products), PackedWeight>>,
    /// Weights converted to the type of the activations, if no kernel packs them.
    converted: Mutex<HashMap<(TensorId, DType), Tensor>>,
}

/// A packed weight.
#[derive(Debug, Clone)]
pub(crate) enum PackedWeight {
    /// Packed for products in f32 or bf16.
    Float(Arc<Packed>),
    /// Rounded and packed for products in int8.
    Int8(Arc<PackedInt8>),
}

impl PackedWeight {
    /// Returns the weight as the right operand of a product.
    pub(crate) fn right<T>(&self) -> Right<'_, T> {
        match self {
            Self::Float(packed) => Right::Packed(packed),
            Self::Int8(packed) => Right::Int8(packed),
        }
    }
}

impl PackedWeights {
    /// Makes an empty cache for int8 products. Weights and activations are rounded to int8 before
    /// they are multiplied, whatever type of products is requested. This applies only to f32
    /// tensors on the host.
    #[must_use]
    pub fn int8() -> Self {
        Self { is_int8: true, ..Self::default() }
    }

    /// Whether weights are packed in int8.
    #[must_use]
    pub fn is_int8(&self) -> bool {
        self.is_int8
    }

    /// Returns the largest number of bytes that `scalars` weights take when packed for the f32
    /// products of this processor.
    #[must_use]
    pub fn bytes_of(scalars: u64) -> u64 {
        match Kernel::best(Products::F32) {
            Kernel::Tiles => scalars.saturating_mul(6),
            Kernel::Gemm => 0,
            _ => scalars.saturating_mul(4),
        }
    }

    /// Returns the weight of a linear layer, `(O, I)`, packed as a right operand `(I, O)`; `None`
    /// if the weight is not f32, or if the kernel for these products does not pack. Packs the
    /// weight on the first call.
    pub(crate) fn get(&self, weight: &Tensor, products: Products) -> Result<Option<PackedWeight>> {
        if weight.dtype() != DType::F32 {
            return Ok(None);
        }
        let key = (weight.id(), products);
        let lock = || self.packed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(packed) = lock().get(&key) {
            return Ok(Some(packed.clone()));
        }
        // The lock must not be held here. Packing runs on several threads, and a thread that waits
        // for the other threads can start other work that calls this function.
        let Some(new) = self.pack(weight, products)? else { return Ok(None) };
        Ok(Some(lock().entry(key).or_insert(new).clone()))
    }

    /// Returns the weight converted to `dtype`; converts it on the first call.
    pub(crate) fn converted(&self, weight: &Tensor, dtype: DType) -> Result<Tensor> {
        if weight.dtype() == dtype {
            return Ok(weight.clone());
        }
        let mut converted = self.converted.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(weight) = converted.get(&(weight.id(), dtype)) {
            return Ok(weight.clone());
        }
        let new = weight.detach().to_dtype(dtype)?;
        converted.insert((weight.id(), dtype), new.clone());
        Ok(new)
    }

    /// Packs a weight `(O, I)`, and frees the values of the weight itself. From then on, only
    /// products of the type `products` that use this cache can read the weight. All other
    /// operations on it return an error. Does nothing for a weight that this cache would not pack.
    ///
    /// # Errors
    /// If the values were freed already, or the weight is not a matrix.
    pub fn replace(&self, weight: &Tensor, products: Products) -> Result<()> {
        match weight.device().is_cpu() && self.get(weight, products)?.is_some() {
            true => free_elements(weight),
            false => Ok(()),
        }
    }

    fn pack(&self, weight: &Tensor, products: Products) -> Result<Option<PackedWeight>> {
        let (outputs, inputs) = weight.dims2()?;
        let host = Host::new(weight)?;
        let values = host.elements::<f32>()?;
        if self.is_int8 && inputs > 0 {
            let packed = PackedInt8::new(&Int8Matrix::round(values, inputs), Int8Kernel::best());
            if let Some(packed) = packed {
                return Ok(Some(PackedWeight::Int8(Arc::new(packed))));
            }
        }
        let Some(packing) = Packing::best(products) else { return Ok(None) };
        let right = (values, Matrix::rows(inputs).transposed());
        let packed = Packed::right(right, inputs, outputs, (packing, Threads::All));
        Ok(Some(PackedWeight::Float(Arc::new(packed))))
    }
}
