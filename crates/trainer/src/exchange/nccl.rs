//! Exchange between processes with one GPU each. Gradients and weights are sent from GPU to GPU
//! with the library NCCL. Messages are sent over another [`Exchange`] (the host), for example
//! sockets. The host also connects the processes, and notices if one of them disappears.

use std::collections::VecDeque;

use candle_core::{Device, Tensor};
use taper_ops::device::nccl::{Communicator, unique_id};

use super::{Exchange, ExchangeError, everyone};

/// Connection of one of several processes with a GPU each.
pub struct Nccl {
    host: Box<dyn Exchange>,
    /// Connection between the GPUs; `None` before the first exchange of tensors on a GPU, which
    /// determines the GPU of this process.
    communicator: Option<Communicator>,
    /// For each exchange that was begun and not ended, the tensors that it returns. Their values
    /// are written by operations that are queued on the GPU. `None` if the exchange was begun on
    /// the host.
    begun: VecDeque<Option<Vec<Tensor>>>,
}

impl Nccl {
    /// Makes an exchange over NCCL for processes that `host` connects.
    #[must_use]
    pub fn over(host: Box<dyn Exchange>) -> Self {
        Self { host, communicator: None, begun: VecDeque::new() }
    }

    /// Returns the connection between the GPUs, which is made on first use.
    fn communicator(&mut self, device: &Device) -> Result<&Communicator, ExchangeError> {
        let communicator = match self.communicator.take() {
            Some(communicator) => communicator,
            None => {
                let (rank, size) = (self.host.rank(), self.host.size());
                let id = if rank == 0 { unique_id() } else { Ok(Vec::new()) };
                // If process 0 cannot make the id of the connection, the others must not wait for
                // the id.
                let failed = everyone(&mut *self.host, id.is_err())?;
                let id = id?;
                if failed[0] {
                    return Err(ExchangeError::Failed { rank: 0 });
                }
                let id = self.host.broadcast(id)?;
                Communicator::connect(device, rank, size, &id)?
            }
        };
        Ok(self.communicator.insert(communicator))
    }
}

impl Exchange for Nccl {
    fn rank(&self) -> usize {
        self.host.rank()
    }

    fn size(&self) -> usize {
        self.host.size()
    }

    fn begin(&mut self, parts: Vec<Tensor>) -> Result<(), ExchangeError> {
        let rank = self.rank();
        let device = match parts.first() {
            Some(part) if part.device().is_cuda() => part.device().clone(),
            _ => {
                self.begun.push_back(None);
                return self.host.begin(parts);
            }
        };
        // The processes tell each other how many values they will send, and wait for each other's
        // message. This does not delay computation: on a GPU, an exchange begins only when all
        // gradients are computed.
        let counts: Vec<u64> = parts.iter().map(|part| part.elem_count() as u64).collect();
        let mut received = Vec::with_capacity(parts.len());
        for (from, counts) in everyone(&mut *self.host, counts)?.iter().enumerate() {
            let count = counts.get(rank).and_then(|&count| usize::try_from(count).ok());
            received.push(count.ok_or(ExchangeError::Garbled { rank: from })?);
        }
        let queued = self.communicator(&device)?.all_to_all(&parts, &received)?;
        self.begun.push_back(Some(queued));
        Ok(())
    }

    fn waits_to_begin(&self) -> bool {
        true
    }

    fn end(&mut self) -> Result<Vec<Tensor>, ExchangeError> {
        match self.begun.pop_front() {
            Some(Some(queued)) => Ok(queued),
            Some(None) => self.host.end(),
            None => Err(ExchangeError::Garbled { rank: self.host.rank() }),
        }
    }

    fn gather(&mut self, message: Vec<u8>) -> Result<Vec<Vec<u8>>, ExchangeError> {
        self.host.gather(message)
    }
}
