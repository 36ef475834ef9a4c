//! Weights packed for matrix products: copied to the order in which a kernel reads them, and kept
//! as long as the weights do not change.

use crate::host::{Host, free_elements};
use crate::mapped::MappedValues;
use crate::products::int8::{Int8Kernel, Int8Matrix, PackedInt8};
use crate::products::{Kernel, Matrix, Packed, Packing, Products, Right, Threads, Unpacked};
use candle_core::{DType, Result, Tensor, TensorId, bail};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Number of products in which a weight in a file is packed for each product, before it is packed
/// for all later ones.
///
/// A product with one row takes 1.6 times as long if it packs the weight. A packed weight that is
/// kept needs new memory, whose pages the system maps and clears: this takes as long as 6 to 25
/// such products lose, depending on the machine (GPT-2 with 124 million parameters, on Zen 3).
const PRODUCTS_BEFORE_PACKING: u32 = 8;

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
/// For a model that only decodes, [`PackedWeights::replace`] packs a weight and frees its own
/// values, so that the model holds each weight once. [`PackedWeights::replace_by`] takes the values
/// from a file, where they stay until several products have used them.
#[derive(Debug, Default)]
pub struct PackedWeights {
    is_int8: bool,
    /// Weights whose values are in files.
    mapped: Mutex<HashMap<TensorId, MappedWeight>>,
    packed: Mutex<HashMap<(TensorId, Products), PackedWeight>>,
    /// Weights converted to the type of the activations, if no kernel packs them.
    converted: Mutex<HashMap<(TensorId, DType), Tensor>>,
}

/// A weight whose values are in a file.
#[derive(Debug)]
struct MappedWeight {
    values: MappedValues,
    /// Number of products so far.
    products: u32,
}

/// A weight as products read it.
#[derive(Debug, Clone)]
pub(crate) enum PackedWeight {
    /// Not packed yet: the values in a file, and how each product packs them.
    Mapped(MappedValues, Packing),
    /// Packed for products in f32 or bf16.
    Float(Arc<Packed>),
    /// Rounded and packed for products in int8.
    Int8(Arc<PackedInt8>),
}

impl PackedWeight {
    /// Returns the weight as the right operand of a product.
    pub(crate) fn right<T>(&self) -> Right<'_, T> {
        match self {
            Self::Mapped(values, packing) => {
                Right::Unpacked(Unpacked { values, packing: *packing })
            }
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
    /// weight on the first call, or, if its values are in a file, on a later call.
    pub(crate) fn get(&self, weight: &Tensor, products: Products) -> Result<Option<PackedWeight>> {
        if weight.dtype() != DType::F32 {
            return Ok(None);
        }
        let key = (weight.id(), products);
        if let Some(packed) = locked(&self.packed).get(&key) {
            return Ok(Some(packed.clone()));
        }
        if let Some(mapped) = locked(&self.mapped).get_mut(&weight.id())
            && let Some(packing) = Packing::best(products)
            && mapped.products < PRODUCTS_BEFORE_PACKING
        {
            mapped.products += 1;
            return Ok(Some(PackedWeight::Mapped(mapped.values.clone(), packing)));
        }
        // No lock must be held here. Packing runs on several threads, and a thread that waits for
        // the other threads can start other work that calls this function.
        let Some(new) = self.pack(weight, products)? else { return Ok(None) };
        Ok(Some(locked(&self.packed).entry(key).or_insert(new).clone()))
    }

    /// Returns the values of a weight that are in a file.
    fn mapped(&self, weight: &Tensor) -> Option<MappedValues> {
        locked(&self.mapped).get(&weight.id()).map(|mapped| mapped.values.clone())
    }

    /// Returns the rows of a weight `(O, I)` with the indices `rows`, `(R, I)`.
    ///
    /// # Errors
    /// If the weight does not have one of the rows.
    pub fn rows(&self, weight: &Tensor, rows: &[u32]) -> Result<Tensor> {
        let Some(values) = self.mapped(weight) else {
            let rows = Tensor::from_slice(rows, rows.len(), weight.device())?;
            return weight.index_select(&rows, 0)?.contiguous();
        };
        let (count, width) = weight.dims2()?;
        let mut chosen = Vec::with_capacity(rows.len() * width);
        for &row in rows {
            let start = row as usize * width;
            match values.get(start..start + width) {
                Some(values) => chosen.extend_from_slice(values),
                None => bail!("row {row} is not in a weight of {count} rows"),
            }
        }
        Tensor::from_vec(chosen, (rows.len(), width), weight.device())
    }

    /// True if the values of a weight are in a file, so that only products that use this cache and
    /// [`PackedWeights::rows`] can read it.
    #[must_use]
    pub fn is_mapped(&self, weight: &Tensor) -> bool {
        locked(&self.mapped).contains_key(&weight.id())
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

    /// Lets a weight `(O, I)` have the values in a file, and frees its own. The first products pack
    /// them each for itself; from then on, the packed weight is kept, and the pages of the file are
    /// given back. Returns `false`, and does nothing, for a weight that this cache would not pack
    /// in f32 or bf16. From then on, only products that use this cache and [`PackedWeights::rows`]
    /// can read the weight.
    ///
    /// # Errors
    /// If the weight is not a matrix, or has another number of values.
    pub fn replace_by(
        &self,
        weight: &Tensor,
        products: Products,
        values: &MappedValues,
    ) -> Result<bool> {
        let is_packed = weight.device().is_cpu()
            && weight.dtype() == DType::F32
            && !self.is_int8
            && Packing::best(products).is_some();
        if !is_packed {
            return Ok(false);
        }
        if weight.rank() != 2 || values.len() != weight.elem_count() {
            bail!("{} values in a file for a weight {:?}", values.len(), weight.shape());
        }
        let mapped = MappedWeight { values: values.clone(), products: 0 };
        locked(&self.mapped).insert(weight.id(), mapped);
        free_elements(weight).map(|()| true)
    }

    fn pack(&self, weight: &Tensor, products: Products) -> Result<Option<PackedWeight>> {
        let (outputs, inputs) = weight.dims2()?;
        if let (Some(mapped), Some(packing)) = (self.mapped(weight), Packing::best(products)) {
            let packed = packed(&mapped, (inputs, outputs), packing);
            mapped.release();
            return Ok(Some(packed));
        }
        let host = Host::new(weight)?;
        let values = host.elements::<f32>()?;
        if self.is_int8 && inputs > 0 {
            let packed = PackedInt8::new(&Int8Matrix::round(values, inputs), Int8Kernel::best());
            if let Some(packed) = packed {
                return Ok(Some(PackedWeight::Int8(Arc::new(packed))));
            }
        }
        Ok(Packing::best(products).map(|packing| packed(values, (inputs, outputs), packing)))
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Packs the transpose of a weight `(O, I)`.
fn packed(values: &[f32], (inputs, outputs): (usize, usize), packing: Packing) -> PackedWeight {
    let right = (values, Matrix::rows(inputs).transposed());
    let packed = Packed::right(right, inputs, outputs, (packing, Threads::All));
    PackedWeight::Float(Arc::new(packed))
}
