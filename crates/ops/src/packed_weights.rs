//! Weights in the layout that the matrix kernels read, kept for as long as they do not change.

use crate::host::Host;
use crate::products::int8::{Int8Kernel, Int8Matrix, PackedInt8};
use crate::products::{Matrix, Packed, Packing, Products, Right, Threads};
use candle_core::{DType, Result, Tensor, TensorId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The weights of a model that decodes: each is packed when it is first multiplied with.
///
/// Packing costs about as much as a product with thirty rows, which a step of decoding would pay
/// for every weight. It takes the memory of the weight again, more or less: for AMX's f32 products one
/// and a half times as much, for bf16 products of bf16 kernels half as much, for int8 a quarter, and
/// nothing on a processor whose kernel does not pack. On a GPU in half precision each is converted
/// once, which takes half of its memory again.
///
/// What is kept does not follow a weight that changes: training goes on without this.
#[derive(Debug, Default)]
pub struct PackedWeights {
    is_int8: bool,
    packed: Mutex<HashMap<(TensorId, Products), PackedWeight>>,
    /// Where no kernel packs: in the type of the activations.
    converted: Mutex<HashMap<(TensorId, DType), Tensor>>,
}

/// One of them.
#[derive(Debug, Clone)]
pub(crate) enum PackedWeight {
    /// For products of f32 or bf16.
    Float(Arc<Packed>),
    /// Rounded, for products of int8.
    Int8(Arc<PackedInt8>),
}

impl PackedWeight {
    /// As the right operand of a product.
    pub(crate) fn right<T>(&self) -> Right<'_, T> {
        match self {
            Self::Float(packed) => Right::Packed(packed),
            Self::Int8(packed) => Right::Int8(packed),
        }
    }
}

impl PackedWeights {
    /// Weights that are rounded to int8 when they are packed, and multiplied by activations that are
    /// rounded to int8 too: whatever the type of products, where tensors are f32 on the host.
    #[must_use]
    pub fn int8() -> Self {
        Self { is_int8: true, ..Self::default() }
    }

    /// The weight `(O, I)` of a linear layer as a right operand `(I, O)`; none where the kernel for
    /// it does not pack.
    pub(crate) fn get(&self, weight: &Tensor, products: Products) -> Result<Option<PackedWeight>> {
        if weight.dtype() != DType::F32 {
            return Ok(None);
        }
        let key = (weight.id(), products);
        let lock = || self.packed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(packed) = lock().get(&key) {
            return Ok(Some(packed.clone()));
        }
        // Packing is shared between threads, and a thread that waits may take up work that asks
        // here too: the lock must not be held.
        let Some(new) = self.pack(weight, products)? else { return Ok(None) };
        Ok(Some(lock().entry(key).or_insert(new).clone()))
    }

    /// The weight itself in another type.
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
            let packed = PackedInt8::new(&Int8Matrix::of(values, inputs), Int8Kernel::best());
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
