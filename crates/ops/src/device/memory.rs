//! Memory of a GPU, as reported by its driver.

use candle_core::{Device, Result};

/// Memory of a GPU, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceMemory {
    /// Number of bytes that this process uses.
    pub in_use: u64,
    /// Number of bytes that this process could still allocate.
    pub available: u64,
}

/// Returns the memory of `device`; `None` for the host, which has [its own
/// counters](crate::allocator).
///
/// CUDA's driver reports how much memory is free, which depends on all processes. For Metal, the
/// limit is the recommended size of the working set, and other processes are ignored.
///
/// # Errors
/// If the driver does not answer.
pub fn memory(device: &Device) -> Result<Option<DeviceMemory>> {
    match device {
        Device::Cpu => Ok(None),
        #[cfg(feature = "cuda")]
        Device::Cuda(device) => cuda::memory(device).map(Some),
        #[cfg(feature = "metal")]
        Device::Metal(device) => {
            let metal = device.metal_device();
            let in_use = metal.current_allocated_size() as u64;
            let limit = metal.recommended_max_working_set_size() as u64;
            Ok(Some(DeviceMemory { in_use, available: limit.saturating_sub(in_use) }))
        }
        #[allow(unreachable_patterns, reason = "a build with every GPU has no other device")]
        _ => Ok(None),
    }
}

/// Runs `work`, and returns its result and the peak number of bytes in use on `device`. Bytes that
/// were in use before are included. The number is `None` where it is not counted: on the host, and
/// on Metal.
///
/// # Errors
/// If the driver does not answer.
pub fn most_in_use<R>(device: &Device, work: impl FnOnce() -> R) -> Result<(R, Option<u64>)> {
    match device {
        #[cfg(feature = "cuda")]
        Device::Cuda(device) => {
            cuda::forget_height(device)?;
            let result = work();
            Ok((result, Some(cuda::height(device)?)))
        }
        _ => Ok((work(), None)),
    }
}

/// Reads the counters of the device's memory pool, from which tensors are allocated. Memory that
/// the pool has taken from the device is available to this process only, until the pool returns it.
#[cfg(feature = "cuda")]
pub(super) mod cuda {
    use super::DeviceMemory;
    use candle_core::cuda::WrapErr;
    use candle_core::cuda::cudarc::driver::result::device::get_default_mem_pool;
    use candle_core::cuda::cudarc::driver::sys::{
        CUmemPool_attribute as Attribute, cuMemPoolGetAttribute, cuMemPoolSetAttribute,
    };
    use candle_core::{CudaDevice, Result};

    pub(super) fn memory(device: &CudaDevice) -> Result<DeviceMemory> {
        let (free, _) = device.cuda_stream().context().mem_get_info().w()?;
        let in_use = figure(device, Attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT)?;
        let reserved = figure(device, Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)?;
        Ok(DeviceMemory { in_use, available: free as u64 + reserved.saturating_sub(in_use) })
    }

    /// Returns the peak number of bytes in use since the last call of [`forget_height`].
    pub(super) fn height(device: &CudaDevice) -> Result<u64> {
        device.cuda_stream().synchronize().w()?;
        figure(device, Attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH)
    }

    pub(super) fn forget_height(device: &CudaDevice) -> Result<()> {
        device.cuda_stream().synchronize().w()?;
        // Writing 0 resets the peak to the number of bytes now in use.
        set(device, Attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH, 0)
    }

    /// Makes the pool keep the memory that it has taken from the device. By default, it returns all
    /// free memory whenever the host waits for the device, and then takes it again. This would
    /// happen in each training step.
    pub(in crate::device) fn keep_freed(device: &CudaDevice) -> Result<()> {
        set(device, Attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, u64::MAX)
    }

    fn set(device: &CudaDevice, attribute: Attribute, mut value: u64) -> Result<()> {
        let stream = device.cuda_stream();
        stream.context().bind_to_thread().w()?;
        // SAFETY: the device has been opened; the attributes that are set have the type u64.
        unsafe {
            let pool = get_default_mem_pool(stream.context().cu_device()).w()?;
            cuMemPoolSetAttribute(pool, attribute, (&raw mut value).cast()).result().w()
        }
    }

    fn figure(device: &CudaDevice, attribute: Attribute) -> Result<u64> {
        let stream = device.cuda_stream();
        stream.context().bind_to_thread().w()?;
        let mut bytes = 0u64;
        // SAFETY: the device has been opened; the attributes that are read have the type u64.
        unsafe {
            let pool = get_default_mem_pool(stream.context().cu_device()).w()?;
            cuMemPoolGetAttribute(pool, attribute, (&raw mut bytes).cast()).result().w()?;
        }
        Ok(bytes)
    }
}
