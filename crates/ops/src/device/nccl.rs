//! Exchange of tensors between the GPUs of several processes by NCCL, without passing through the
//! host.
//!
//! Exchanges are queued on the device's single stream, like all other work. So they run after the
//! work that computes their inputs, and before the work that uses their results. No CUDA events are
//! needed. NCCL only moves data. It does not add, because the order of its additions would depend
//! on the number of processes and on the network.

use candle_core::cuda_backend::cudarc::driver::CudaSlice;
use candle_core::cuda_backend::cudarc::nccl::result::{NcclError, group_end, group_start};
use candle_core::cuda_backend::cudarc::nccl::safe::{Comm, Id};
use candle_core::op::BackpropOp;
use candle_core::{CudaStorage, Device, Result, Storage, Tensor, bail};

/// Length, in bytes, of the id that all processes of a group share.
pub const UNIQUE_ID: usize = 128;

/// Connection of this process's GPU with the GPUs of other processes.
#[derive(Debug)]
pub struct Communicator {
    comm: Comm,
    device: Device,
}

// SAFETY: NCCL allows any thread to use the handle of a communicator, but only one thread at a
// time. Two threads cannot use it at the same time: `Communicator` is not `Sync`, because `Comm` is
// not. In addition, `all_to_all` returns an error, before it uses the handle, on any thread other
// than the first thread that used a GPU (see `super::check`).
unsafe impl Send for Communicator {}

/// Makes the id of a new group; the first process of the group makes it, and sends it to the
/// others.
///
/// # Errors
/// If the NCCL library is missing.
pub fn unique_id() -> Result<Vec<u8>> {
    let id = Id::new().map_err(|error| failed(&error))?;
    Ok(id.internal().iter().map(|&byte| byte as u8).collect())
}

impl Communicator {
    /// Connects `device`, the GPU of process `rank` of `size` processes, with the GPUs of the other
    /// processes. Each process calls this function with the same `id`; it waits for all of them.
    ///
    /// # Errors
    /// If `id` or `rank` is invalid, `device` is not a GPU, or NCCL cannot connect the GPUs.
    pub fn connect(device: &Device, rank: usize, size: usize, id: &[u8]) -> Result<Self> {
        super::check(device)?;
        let Ok(bytes) = <[u8; UNIQUE_ID]>::try_from(id) else {
            bail!("{} bytes are not an id of NCCL, which must have {UNIQUE_ID} bytes", id.len());
        };
        if rank >= size || i32::try_from(size).is_err() {
            bail!("process {rank} of {size}: the processes are counted from 0");
        }
        let id = Id::uninit(bytes.map(|byte| byte as core::ffi::c_char));
        let stream = device.as_cuda_device()?.cuda_stream();
        let comm = Comm::from_rank(stream, rank, size, id).map_err(|error| failed(&error))?;
        Ok(Self { comm, device: device.clone() })
    }

    /// Queues an exchange: `parts[r]` is sent to process `r`, and `counts[r]` values are received
    /// from it.
    ///
    /// # Shapes
    /// `parts` are one-dimensional and f32 → a tensor `(counts[r],)` for each process `r`.
    ///
    /// # Errors
    /// If a part is not on this GPU, the numbers of parts or counts are wrong, or NCCL refuses a
    /// call.
    pub fn all_to_all(&self, parts: &[Tensor], counts: &[usize]) -> Result<Vec<Tensor>> {
        super::check(&self.device)?;
        let (rank, size) = (self.comm.rank(), self.comm.world_size());
        if parts.len() != size || counts.len() != size || counts[rank] != parts[rank].elem_count() {
            bail!("{} parts and {} counts do not fit {size} processes", parts.len(), counts.len());
        }
        let device = self.device.as_cuda_device()?.clone();
        let parts = parts.iter().map(Tensor::contiguous).collect::<Result<Vec<_>>>()?;
        let mut received = Vec::with_capacity(size);
        for (peer, &count) in counts.iter().enumerate() {
            let count = if peer == rank { 0 } else { count };
            // At least one element, because an empty buffer would have no address.
            received.push(device.alloc_zeros::<f32>(count.max(1))?);
        }
        let peers = move || (0..size).filter(move |&peer| peer != rank);
        group_start().map_err(|error| failed(&error))?;
        let mut queue = || -> Result<()> {
            for peer in peers() {
                let to = peer as i32;
                if parts[peer].elem_count() > 0 {
                    let (storage, layout) = parts[peer].storage_and_layout();
                    let Storage::Cuda(storage) = &*storage else {
                        bail!("a part for process {peer} is not on the GPU");
                    };
                    let Some((start, end)) = layout.contiguous_offsets() else {
                        bail!("a part for process {peer} is strided");
                    };
                    let values = storage.as_cuda_slice::<f32>()?.slice(start..end);
                    self.comm.send(&values, to).map_err(|error| failed(&error))?;
                }
                if counts[peer] > 0 {
                    let mut buffer = received[peer].slice_mut(..counts[peer]);
                    self.comm.recv(&mut buffer, to).map_err(|error| failed(&error))?;
                }
            }
            Ok(())
        };
        let queued = queue();
        // Ends the group even after a failure; otherwise the next group would be nested in it.
        group_end().map_err(|error| failed(&error))?;
        queued?;
        let tensor = |(peer, values): (usize, CudaSlice<f32>)| {
            if peer == rank {
                return Ok(parts[rank].clone());
            }
            let storage = Storage::Cuda(CudaStorage::wrap_cuda_slice(values, device.clone()));
            let whole =
                Tensor::from_storage(storage, counts[peer].max(1), BackpropOp::none(), false);
            whole.narrow(0, 0, counts[peer])
        };
        received.into_iter().enumerate().map(tensor).collect()
    }
}

/// Converts an error of NCCL.
fn failed(error: &NcclError) -> candle_core::Error {
    candle_core::Error::Msg(format!("NCCL: {error:?}"))
}
