//! GPUs of this process: each is opened once, with a single stream, and used by a single thread.
//!
//! **Decision.** Candle's `Device::new_cuda` queues work on the calling thread's stream, and does
//! not order the work of two threads. So one thread could read weights before an update that
//! another thread has queued. Memory that one thread frees could be reused while a kernel of
//! another thread still reads it. Here a device has one explicit stream for the whole process,
//! which runs work in the order in which it was queued. So nothing has to wait for events. The two
//! events that cudarc creates for each allocation are turned off before the first allocation. The
//! alternative, events between streams, costs two driver calls for each tensor of each kernel. It
//! would gain nothing, because each operation of a training step needs the result of the one
//! before.
//!
//! Work is queued in program order as long as a single thread queues all of it. Operations,
//! gradients and optimizer steps call [`check`], which refuses other threads. The [thread
//! pool](crate::threads) therefore leaves work for a GPU to the calling thread.
//!
//! [`kernel_times`] measures kernels, [`memory`] returns the device's memory as reported by its
//! driver, and [`check_count`] keeps tensors within the number of elements that kernels can count.

mod addition;
mod kernel_time;
mod kernels;
mod memory;
#[cfg(feature = "nccl")]
pub mod nccl;

pub(crate) use addition::{AddInPlace, add_in_place};
pub use kernel_time::{KernelSizes, KernelTime};
pub use kernels::kernel_times;
pub(crate) use kernels::{kernels, kernels_of};
pub use memory::{DeviceMemory, memory, most_in_use};

use candle_core::{Device, DeviceLocation, Result, bail};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::ThreadId;

/// Opens the CUDA device with this index, on its single stream. From then on, only the calling
/// thread is allowed to use GPUs.
///
/// # Errors
/// If there is no such device, this build has no CUDA, or another thread has opened a GPU.
pub fn cuda(ordinal: usize) -> Result<Device> {
    opened(DeviceLocation::Cuda { gpu_id: ordinal }, || {
        let device = Device::new_cuda_with_stream(ordinal)?;
        #[cfg(feature = "cuda")]
        // SAFETY: all memory is allocated, used and freed on the single stream of this device, in
        // program order, so that no events are needed for ordering. No memory has been allocated
        // before.
        unsafe {
            device.as_cuda_device()?.disable_event_tracking();
        }
        #[cfg(feature = "cuda")]
        memory::cuda::keep_freed(device.as_cuda_device()?)?;
        Ok(device)
    })
}

/// Opens the Metal device with this index. From then on, only the calling thread is allowed to use
/// GPUs.
///
/// # Errors
/// If there is no such device, this build has no Metal, or another thread has opened a GPU.
pub fn metal(ordinal: usize) -> Result<Device> {
    opened(DeviceLocation::Metal { gpu_id: ordinal }, || Device::new_metal(ordinal))
}

/// Returns the device at `location`. Calls `open` only the first time, because a device that is
/// opened again would have another stream.
fn opened(location: DeviceLocation, open: impl FnOnce() -> Result<Device>) -> Result<Device> {
    static OPENED: Mutex<Vec<(DeviceLocation, Device)>> = Mutex::new(Vec::new());
    let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, device)) = opened.iter().find(|(at, _)| *at == location) {
        check(device)?;
        return Ok(device.clone());
    }
    let device = open()?;
    check(&device)?;
    opened.push((location, device.clone()));
    Ok(device)
}

/// Checks that the calling thread is allowed to use `device`: GPUs belong to the first thread that
/// uses one.
///
/// # Errors
/// If another thread uses GPUs.
pub fn check(device: &Device) -> Result<()> {
    static GPUS: OneThread = OneThread::new();
    if device.is_cpu() { Ok(()) } else { GPUS.check() }
}

/// Checks that a tensor of `count` elements is not too large for `device`. On a GPU, Candle's
/// kernels count elements in 32 bits, and would leave further elements unwritten; the host has no
/// limit. `what` describes the tensor in the error message.
///
/// # Errors
/// If `device` is a GPU and `count` is 2³² or more.
pub fn check_count(device: &Device, what: &str, count: usize) -> Result<()> {
    if !device.is_cpu() && u32::try_from(count).is_err() {
        bail!(
            "{what} would be {count} numbers in one tensor, and GPU kernels count to 4294967295: \
             batches of fewer tokens or shorter sequences are needed, or a smaller model"
        );
    }
    Ok(())
}

/// Restricts a resource to a single thread: the first one that requests it.
#[derive(Debug, Default)]
struct OneThread(OnceLock<ThreadId>);

impl OneThread {
    const fn new() -> Self {
        Self(OnceLock::new())
    }

    fn check(&self) -> Result<()> {
        let caller = std::thread::current();
        let owner = *self.0.get_or_init(|| caller.id());
        if owner != caller.id() {
            bail!(
                "thread {:?} ({}) used a device that belongs to thread {owner:?}: its work would \
                 not be ordered with the rest",
                caller.id(),
                caller.name().unwrap_or("without a name"),
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_thread_uses_is_refused_to_others() {
        let device = OneThread::new();
        device.check().expect("the first thread");
        let other = || std::thread::scope(|scope| scope.spawn(|| device.check()).join());
        let error = other().expect("no panic").expect_err("another thread");
        assert!(error.to_string().contains("would not be ordered"), "{error}");
        device.check().expect("the first thread again");
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().expect("a pool");
        assert!(pool.install(|| device.check()).is_err(), "a thread of a pool");
    }

    /// Here, `CudaDevice` stands for a GPU, although this build cannot open one.
    #[cfg(not(feature = "cuda"))]
    #[test]
    fn work_for_a_gpu_stays_on_the_thread_that_owns_it() {
        use crate::threads::{in_pool, in_waking_pool};
        let gpu = Device::Cuda(candle_core::CudaDevice);
        check(&gpu).expect("the first thread");
        in_pool(&gpu, || check(&gpu)).expect("short work");
        in_waking_pool(&gpu, || check(&gpu)).expect("long work");
        // Work for the host runs on threads of the pool, which are not allowed to use a GPU.
        in_pool(&Device::Cpu, || check(&gpu)).expect_err("a thread of the pool");
        in_waking_pool(&Device::Cpu, || check(&gpu)).expect_err("a thread of the pool");
    }

    #[test]
    fn any_thread_uses_the_host() {
        check(&Device::Cpu).expect("this thread");
        let other = std::thread::spawn(|| check(&Device::Cpu)).join();
        other.expect("no panic").expect("another thread");
    }

    #[cfg(not(feature = "cuda"))]
    #[test]
    fn what_kernels_cannot_count_is_refused_on_a_gpu() {
        let gpu = Device::Cuda(candle_core::CudaDevice);
        check_count(&gpu, "scores", (1 << 32) - 1).expect("the most");
        let error = check_count(&gpu, "scores", 1 << 32).expect_err("one more");
        assert!(error.to_string().contains("scores would be 4294967296"), "{error}");
        check_count(&Device::Cpu, "scores", 1 << 40).expect("the host counts in 64 bits");
    }

    #[test]
    fn a_device_is_opened_once() {
        let location = DeviceLocation::Metal { gpu_id: 77 };
        let mut times = 0;
        for _ in 0..2 {
            let open = || {
                times += 1;
                Ok(Device::Cpu)
            };
            opened(location, open).expect("a device");
        }
        assert_eq!(times, 1);
    }
}
