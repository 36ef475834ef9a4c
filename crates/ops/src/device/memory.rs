//! The memory of a GPU, as its driver tells it.

use candle_core::{Device, Result};

/// The memory of a GPU, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceMemory {
    /// What this process has.
    pub in_use: u64,
    /// What it could have besides.
    pub available: u64,
}

/// The memory of `device`; none of the host, which has [counters of its own](crate::allocator).
///
/// CUDA's driver says what is free, other processes counted. Of Metal it is what the working set
/// should not exceed.
///
/// # Errors
/// When the driver does not say.
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

/// Runs `work`, and says how many bytes of `device` were in use at its height: those of what was
/// there before included. None where nothing counts them: on the host, and on Metal.
///
/// # Errors
/// When the driver does not say.
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

/// Tensors come from the device's pool of memory, which keeps count of them: what it has taken from
/// the device and not given back is free for this process alone.
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

    /// The most that was in use since the last [`forget_height`].
    pub(super) fn height(device: &CudaDevice) -> Result<u64> {
        device.cuda_stream().synchronize().w()?;
        figure(device, Attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH)
    }

    pub(super) fn forget_height(device: &CudaDevice) -> Result<()> {
        device.cuda_stream().synchronize().w()?;
        // Zero sets it to what is in use.
        set(device, Attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH, 0)
    }

    /// Has the pool keep what it has taken from the device: by itself it gives everything that is
    /// free back whenever the host waits for the device, which is once a step, and takes it anew.
    pub(in crate::device) fn keep_freed(device: &CudaDevice) -> Result<()> {
        set(device, Attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, u64::MAX)
    }

    fn set(device: &CudaDevice, attribute: Attribute, mut value: u64) -> Result<()> {
        let stream = device.cuda_stream();
        stream.context().bind_to_thread().w()?;
        // SAFETY: the device is one that was opened; the attributes that are set are u64.
        unsafe {
            let pool = get_default_mem_pool(stream.context().cu_device()).w()?;
            cuMemPoolSetAttribute(pool, attribute, (&raw mut value).cast()).result().w()
        }
    }

    fn figure(device: &CudaDevice, attribute: Attribute) -> Result<u64> {
        let stream = device.cuda_stream();
        stream.context().bind_to_thread().w()?;
        let mut bytes = 0u64;
        // SAFETY: the device is one that was opened; the attributes asked for are u64.
        unsafe {
            let pool = get_default_mem_pool(stream.context().cu_device()).w()?;
            cuMemPoolGetAttribute(pool, attribute, (&raw mut bytes).cast()).result().w()?;
        }
        Ok(bytes)
    }
}
