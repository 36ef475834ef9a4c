//! Weights in the layout that the matrix kernels read, kept for as long as they do not change.

use crate::host::Host;
use crate::products::{Matrix, Packed, Packing, Products, Threads};
use candle_core::{DType, Result, Tensor, TensorId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The weights of a model that decodes: each is packed when it is first multiplied with.
///
/// Packing costs about as much as a product with thirty rows, which a step of decoding would pay
/// for every weight. It takes the memory of the weight again, more or less: for AMX's f32 products one
/// and a half times as much, for bf16 products of bf16 kernels half as much, and nothing on a
/// processor whose kernel does not pack.
///
/// What is kept does not follow a weight that changes: training goes on without this.
#[derive(Debug, Default)]
pub struct PackedWeights {
    packed: Mutex<HashMap<(TensorId, Products), Arc<Packed>>>,
}

impl PackedWeights {
    /// The weight `(O, I)` of a linear layer as a right operand `(I, O)`; none where the kernel for
    /// it does not pack.
    pub(crate) fn get(&self, weight: &Tensor, products: Products) -> Result<Option<Arc<Packed>>> {
        let Some(packing) = Packing::best(products).filter(|_| weight.dtype() == DType::F32) else {
            return Ok(None);
        };
        let key = (weight.id(), products);
        let lock = || self.packed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(packed) = lock().get(&key) {
            return Ok(Some(packed.clone()));
        }
        // Packing is shared between threads, and a thread that waits may take up work that asks
        // here too: the lock must not be held.
        let (outputs, inputs) = weight.dims2()?;
        let host = Host::new(weight)?;
        let right = (host.elements::<f32>()?, Matrix::rows(inputs).transposed());
        let new = Arc::new(Packed::right(right, inputs, outputs, (packing, Threads::All)));
        Ok(Some(lock().entry(key).or_insert(new).clone()))
    }
}
