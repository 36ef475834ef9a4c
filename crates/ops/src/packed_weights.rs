//! Weights in the layout of the matrix kernels, kept as long as they do not change.

use crate::host::Host;
use crate::products::int8::{Int8Kernel, Int8Matrix, PackedInt8};
use crate::products::{Kernel, Matrix, Packed, Packing, Products, Right, Threads};
use candle_core::{DType, Result, Tensor, TensorId};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

/// Number of scalars from which on a weight is packed on its second product only.
const LARGE: usize = 1 << 18;

/// Packed weights of a decoding model; each is packed on its first product, or on its second if it
/// is large.
///
/// Packing costs about as much as a product with thirty rows; otherwise each step of decoding would
/// pay this for every weight. The packed weights of a large model also have to be written to new
/// memory, which would delay the first token; and a text of one token needs each weight once. It takes additional memory, as a multiple of the weight's: 1.5 for
/// AMX's f32 products, 0.5 for bf16 products of bf16 kernels, 0.25 for int8, 1 otherwise, and none
/// on a processor whose kernel does not pack. On a GPU in half precision each weight is converted
/// once, which takes another half of its memory.
///
/// Packed weights do not follow changes of the original, so that training does not use them.
#[derive(Debug, Default)]
pub struct PackedWeights {
    is_int8: bool,
    packed: Mutex<HashMap<(TensorId, Products), PackedWeight>>,
    /// Large weights that were used once.
    used: Mutex<HashSet<(TensorId, Products)>>,
    /// Weights in the type of the activations, if no kernel packs.
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
    /// The weight as the right operand of a product.
    pub(crate) fn right<T>(&self) -> Right<'_, T> {
        match self {
            Self::Float(packed) => Right::Packed(packed),
            Self::Int8(packed) => Right::Int8(packed),
        }
    }
}

impl PackedWeights {
    /// Makes packs that round weights to int8, and multiply them by activations that are also
    /// rounded to int8, whatever the type of products, if tensors are f32 on the host.
    #[must_use]
    pub fn int8() -> Self {
        Self { is_int8: true, ..Self::default() }
    }

    /// Largest number of bytes that packs of `scalars` weights take for the f32 products of this
    /// processor.
    #[must_use]
    pub fn bytes_of(scalars: u64) -> u64 {
        match Kernel::best(Products::F32) {
            Kernel::Tiles => scalars.saturating_mul(6),
            Kernel::Gemm => 0,
            _ => scalars.saturating_mul(4),
        }
    }

    /// Weight `(O, I)` of a linear layer as a right operand `(I, O)`; `None` if its kernel does not
    /// pack.
    pub(crate) fn get(&self, weight: &Tensor, products: Products) -> Result<Option<PackedWeight>> {
        if weight.dtype() != DType::F32 {
            return Ok(None);
        }
        let key = (weight.id(), products);
        let lock = || self.packed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(packed) = lock().get(&key) {
            return Ok(Some(packed.clone()));
        }
        // Packing runs on several threads, and a waiting thread may start other work that calls
        // this function; so the lock must not be held.
        let Some(new) = self.pack(weight, products)? else { return Ok(None) };
        Ok(Some(lock().entry(key).or_insert(new).clone()))
    }

    /// Packed weight like [`PackedWeights::get`], for one product; `None` also for a large weight
    /// that is used for the first time. Products have the same bits in both cases.
    pub(crate) fn get_if_used(
        &self,
        weight: &Tensor,
        products: Products,
    ) -> Result<Option<PackedWeight>> {
        // Products in int8 exist only with packed weights.
        if !self.is_int8 && weight.elem_count() >= LARGE {
            let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
            if used.insert((weight.id(), products)) {
                return Ok(None);
            }
        }
        self.get(weight, products)
    }

    /// The weight, converted to another type.
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
