//! Access to the elements of Candle's tensors in main memory (the host).

use candle_core::backend::BackendStorage;
use candle_core::{
    CpuStorage, DType, InplaceOp1, Layout, Result, Storage, Tensor, WithDType, bail,
};
use std::cell::RefCell;
use std::ops::Deref;

/// Read access to the elements of a tensor on the host, in row-major order.
pub(crate) struct Host<'a> {
    /// Candle's read guard of the tensor's storage. It is boxed because its type is private.
    storage: Box<dyn Deref<Target = Storage> + 'a>,
    start: usize,
    end: usize,
}

impl<'a> Host<'a> {
    /// Locks a tensor for reading for as long as the result lives.
    ///
    /// # Errors
    /// If the elements are not contiguous.
    pub(crate) fn new(tensor: &'a Tensor) -> Result<Self> {
        let (storage, layout) = tensor.storage_and_layout();
        match layout.contiguous_offsets() {
            Some((start, end)) => Ok(Self { storage: Box::new(storage), start, end }),
            None => bail!("a fused operation got a strided tensor of shape {:?}", layout.shape()),
        }
    }

    /// Returns the type of the elements.
    pub(crate) fn dtype(&self) -> DType {
        self.storage.dtype()
    }

    pub(crate) fn elements<T: WithDType>(&self) -> Result<&[T]> {
        match &**self.storage {
            Storage::Cpu(storage) => {
                match T::cpu_storage_as_slice(storage)?.get(self.start..self.end) {
                    Some(elements) => Ok(elements),
                    None => bail!("the values of this weight were freed when it was packed"),
                }
            }
            _ => bail!("a fused operation got a tensor that is not on the host"),
        }
    }
}

/// Returns the element type of a tensor, or of a tensor's storage.
pub(crate) trait Typed {
    fn data_type(&self) -> DType;
}

impl Typed for Tensor {
    fn data_type(&self) -> DType {
        self.dtype()
    }
}

impl Typed for CpuStorage {
    fn data_type(&self) -> DType {
        BackendStorage::dtype(self)
    }
}

/// Runs code that is generic over [`Float`], with `$T` as the element type of a tensor. If the type
/// is neither f32 nor f64, the function that contains the macro returns an error.
macro_rules! for_float {
    ($tensor:expr, $T:ident => $body:expr) => {
        match $crate::host::Typed::data_type($tensor) {
            candle_core::DType::F32 => {
                type $T = f32;
                $body
            }
            candle_core::DType::F64 => {
                type $T = f64;
                $body
            }
            other => candle_core::bail!("fused operations work on f32 and f64, not {other:?}"),
        }
    };
}
pub(crate) use for_float;

/// Calls `update` with mutable access to the elements of a contiguous f32 tensor on the host.
pub(crate) fn update_elements(
    tensor: &Tensor,
    update: impl FnMut(&mut [f32]) -> Result<()>,
) -> Result<()> {
    tensor.inplace_op1(&Update(RefCell::new(update)))
}

/// Frees the elements of a tensor on the host, and of all tensors that share its storage. Reading
/// them is an error from then on.
pub(crate) fn free_elements(tensor: &Tensor) -> Result<()> {
    tensor.inplace_op1(&Free)
}

struct Free;

impl InplaceOp1 for Free {
    fn name(&self) -> &'static str {
        "free-elements"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, _: &Layout) -> Result<()> {
        *storage = f32::to_cpu_storage(&[]);
        Ok(())
    }
}

struct Update<F>(RefCell<F>);

impl<F: FnMut(&mut [f32]) -> Result<()>> InplaceOp1 for Update<F> {
    fn name(&self) -> &'static str {
        "update-elements"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> Result<()> {
        let CpuStorage::F32(values) = storage else {
            candle_core::bail!("expected f32, got {:?}", storage.data_type())
        };
        match layout.contiguous_offsets() {
            Some((start, end)) => (self.0.borrow_mut())(&mut values[start..end]),
            None => candle_core::bail!("expected a contiguous tensor, got {layout:?}"),
        }
    }
}
