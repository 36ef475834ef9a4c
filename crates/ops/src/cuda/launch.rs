//! Launching CUDA kernels: arguments, and memory for results.

use candle_core::backend::BackendStorage;
use candle_core::cuda_backend::cudarc::driver::{
    CudaModule, CudaSlice, DevicePtr, LaunchConfig, PushKernelArg,
};
use candle_core::cuda_backend::cudarc::nvrtc::Ptx;
use candle_core::cuda_backend::{CudaStorageSlice, WrapErr};
use candle_core::op::BackpropOp;
use candle_core::{
    CpuStorage, CudaDevice, CudaStorage, DType, Layout, Result, Shape, Storage, Tensor, bail,
};
use std::sync::{Arc, Mutex, PoisonError};

/// The kernels: machine code for the GPUs that the build was for, and PTX for later ones. The driver
/// takes what suits the device.
const KERNELS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/kernels.fatbin"));

/// Number of threads in a warp, which processes one row in some kernels.
pub(super) const WARP: usize = 32;
/// Number of threads in a block.
pub(super) const THREADS: usize = 8 * WARP;
/// Largest number of blocks in a grid whose threads each process several elements, one after
/// another. No device runs more blocks at the same time.
const MOST_BLOCKS: usize = 1 << 14;
/// Largest size of a grid in y that CUDA can launch; in x it is 2³¹ − 1.
const MOST_IN_Y: usize = (1 << 16) - 1;
/// Number of bytes that a thread reads and writes in one instruction, if the width of rows allows
/// it.
pub(super) const PIECE: usize = 16;

/// An argument of a kernel.
#[derive(Debug, Clone, Copy)]
pub(super) enum Argument {
    /// An address on the device, or a number of elements or rows, in 64 bits.
    Long(u64),
    /// A size, or the number that stands for an option, in 32 bits.
    Word(u32),
    /// A real number, in f32.
    Real(f32),
}

impl From<u64> for Argument {
    fn from(value: u64) -> Self {
        Self::Long(value)
    }
}

impl From<u32> for Argument {
    fn from(value: u32) -> Self {
        Self::Word(value)
    }
}

impl From<f32> for Argument {
    fn from(value: f32) -> Self {
        Self::Real(value)
    }
}

impl From<f64> for Argument {
    fn from(value: f64) -> Self {
        Self::Real(value as f32)
    }
}

/// Converts a size to 32 bits, because kernels count in 32 bits.
pub(super) fn word(size: usize) -> Result<u32> {
    match u32::try_from(size) {
        Ok(size) => Ok(size),
        Err(_) => bail!("a size of {size} is more than a kernel can count"),
    }
}

/// Returns the grid of blocks, (x, y), that have at least `count` threads in total.
pub(super) fn blocks(count: usize) -> (usize, usize) {
    (count.div_ceil(THREADS), 1)
}

/// Returns the grid of blocks, (x, y), whose threads together walk over `count` elements.
pub(super) fn walking(count: usize) -> (usize, usize) {
    (count.div_ceil(THREADS).min(MOST_BLOCKS), 1)
}

/// Returns the grid of blocks, (x, y), whose threads together walk over `count` elements of
/// a type, [`PIECE`] bytes at a time.
pub(super) fn walking_in_pieces(count: usize, dtype: DType) -> (usize, usize) {
    walking(count.div_ceil(PIECE / dtype.size_in_bytes()))
}

/// Queues the kernel `name` on the device's stream; if the grid is empty, does nothing.
///
/// # Errors
/// If the grid is larger in y than [`MOST_IN_Y`], or the driver reports an error.
///
/// # Safety
/// Addresses among the arguments point to as many elements as the kernel reads and writes.
pub(super) unsafe fn launch(
    device: &CudaDevice,
    name: &str,
    (x, y): (usize, usize),
    arguments: &[Argument],
) -> Result<()> {
    if x == 0 || y == 0 {
        return Ok(());
    }
    if y > MOST_IN_Y {
        bail!("the kernel {name} needs a grid of {x} by {y} blocks, more than CUDA can launch");
    }
    let stream = device.cuda_stream();
    let function = kernels(device)?.load_function(name).w()?;
    let mut builder = stream.launch_builder(&function);
    for argument in arguments {
        match argument {
            Argument::Long(value) => builder.arg(value),
            Argument::Word(value) => builder.arg(value),
            Argument::Real(value) => builder.arg(value),
        };
    }
    let config = LaunchConfig {
        grid_dim: (word(x)?, word(y)?, 1),
        block_dim: (THREADS as u32, 1, 1),
        shared_mem_bytes: 0,
    };
    // SAFETY: as the caller promises.
    unsafe { builder.launch(config) }.w()?;
    Ok(())
}

/// Returns the kernels on a device, which are loaded at their first use. By itself, Candle loads PTX
/// alone.
fn kernels(device: &CudaDevice) -> Result<Arc<CudaModule>> {
    static LOADED: Mutex<Vec<(usize, Arc<CudaModule>)>> = Mutex::new(Vec::new());
    let stream = device.cuda_stream();
    let context = stream.context();
    let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    // All of a process's work for a device is in one context, which the module keeps.
    if let Some((_, module)) = loaded.iter().find(|(ordinal, _)| *ordinal == context.ordinal()) {
        return Ok(module.clone());
    }
    let module = context.load_module(Ptx::from_binary(KERNELS.to_vec())).w()?;
    loaded.push((context.ordinal(), module.clone()));
    Ok(module)
}

/// Returns the suffix that the names of kernels have for a type.
pub(super) fn suffix(dtype: DType) -> Result<&'static str> {
    match dtype {
        DType::F32 => Ok("f32"),
        DType::F16 => Ok("f16"),
        DType::BF16 => Ok("bf16"),
        other => bail!("no kernel for CUDA computes in {other:?}"),
    }
}

/// True if there are kernels for this type.
pub(super) fn computes(dtype: DType) -> bool {
    suffix(dtype).is_ok()
}

/// Returns the address of the first element of a contiguous tensor.
pub(super) fn address(storage: &CudaStorage, layout: &Layout) -> Result<u64> {
    let Some((start, _)) = layout.contiguous_offsets() else {
        bail!("a kernel was given a tensor that is not contiguous");
    };
    fn address_in<T>(slice: &CudaSlice<T>, device: &CudaDevice, start: usize) -> u64 {
        let stream = device.cuda_stream();
        let (address, _guard) = slice.device_ptr(&stream);
        address + (start * size_of::<T>()) as u64
    }
    Ok(match &storage.slice {
        CudaStorageSlice::F32(slice) => address_in(slice, &storage.device, start),
        CudaStorageSlice::F16(slice) => address_in(slice, &storage.device, start),
        CudaStorageSlice::BF16(slice) => address_in(slice, &storage.device, start),
        CudaStorageSlice::U32(slice) => address_in(slice, &storage.device, start),
        _ => bail!("no kernel for CUDA computes in {:?}", storage.dtype()),
    })
}

/// Returns the address of the first element of a contiguous tensor.
pub(super) fn address_of(tensor: &Tensor) -> Result<u64> {
    let (storage, layout) = tensor.storage_and_layout();
    match &*storage {
        Storage::Cuda(storage) => address(storage, layout),
        _ => bail!("a kernel for CUDA was given a tensor of another device"),
    }
}

/// Allocates memory for a result; the kernel must write all of it.
pub(super) fn room(device: &CudaDevice, dtype: DType, count: usize) -> Result<CudaStorage> {
    let device = device.clone();
    // SAFETY: no element is read before a kernel has written it.
    unsafe {
        Ok(match dtype {
            DType::F32 => CudaStorage::wrap_cuda_slice(device.alloc::<f32>(count)?, device),
            DType::F16 => CudaStorage::wrap_cuda_slice(device.alloc::<half::f16>(count)?, device),
            DType::BF16 => CudaStorage::wrap_cuda_slice(device.alloc::<half::bf16>(count)?, device),
            other => bail!("no kernel for CUDA computes in {other:?}"),
        })
    }
}

/// Allocates a tensor; a kernel must write all of it.
pub(super) fn empty(shape: impl Into<Shape>, dtype: DType, device: &CudaDevice) -> Result<Tensor> {
    let shape = shape.into();
    let storage = Storage::Cuda(room(device, dtype, shape.elem_count())?);
    Ok(Tensor::from_storage(storage, shape, BackpropOp::none(), false))
}

/// Returns the error of an operation for CUDA that was called on the host.
pub(super) fn no_host(name: &str) -> Result<(CpuStorage, Shape)> {
    bail!("{name} is computed by CUDA alone")
}
