//! Exchange between processes on one machine or on several. Each process is connected to all
//! others: by TCP or, on the same machine, by a Unix socket, which takes less processor time.
//!
//! A thread of the receiver reads data as they arrive, so the sender never waits for the receiver.
//! If a process is killed, its connections are closed, which the other processes notice at once. If
//! the machine of a process fails, the others notice the silence within half a minute. A process
//! that ends announces this after its last message, so the others read all of its messages.

mod addresses;
mod calling;
mod door;
mod frame;
mod greeting;
mod lines;
mod neighbour;
mod rendezvous;
mod stream;

use std::collections::VecDeque;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use candle_core::{Device, Tensor};

use super::{Exchange, ExchangeError};
use frame::Patience;
use lines::{Incoming, Lines, Outgoing};

pub use lines::OnProcessLoss;
pub use rendezvous::Rendezvous;

/// Connection of one of several processes that are connected by sockets.
pub struct Sockets {
    rank: usize,
    size: usize,
    lines: Arc<Lines>,
    incoming: Receiver<(usize, Incoming)>,
    /// For each rank, the messages from that process that have arrived but have not been requested
    /// yet.
    waiting: Vec<VecDeque<Incoming>>,
    /// For each exchange that was begun and not ended, the part that this process sends to itself.
    own: VecDeque<Tensor>,
}

/// Handle with which a process that must end immediately, for example after a signal, announces
/// this to the other processes.
#[derive(Clone)]
pub struct LeaveHandle(Arc<Lines>);

impl LeaveHandle {
    /// Announces to the other processes that this one ends. This process must report the reason
    /// itself.
    pub fn say(&self) {
        self.0.leave();
    }
}

impl Sockets {
    /// Connects to the other processes.
    ///
    /// `listener` is given by a process 0 that already listens, because it has started the other
    /// processes itself; otherwise it is `None`. `watch` is called repeatedly while this process
    /// waits; if it returns an error, the wait ends. `on_loss` is called on a separate thread if a
    /// process is lost later, even while this process is busy.
    ///
    /// # Errors
    /// If other machines can reach process 0 but there is no key. Also if a process does not
    /// connect in time, runs another version of this program, or was started with another number of
    /// processes.
    pub fn meet(
        rendezvous: &Rendezvous,
        listener: Option<TcpListener>,
        watch: &mut dyn FnMut() -> Result<(), ExchangeError>,
        on_loss: OnProcessLoss,
    ) -> Result<Self, ExchangeError> {
        let (rank, size) = (rendezvous.rank, rendezvous.size);
        let streams = rendezvous.connections(listener, watch)?;
        let (sender, incoming) = channel();
        let lines = Lines::open(streams, Patience::USUAL, &sender, on_loss)
            .map_err(|error| ExchangeError::Rendezvous(format!("process {rank}: {error}")))?;
        let waiting = (0..size).map(|_| VecDeque::new()).collect();
        Ok(Self { rank, size, lines, incoming, waiting, own: VecDeque::new() })
    }

    /// Returns a handle with which this process can announce to the others that it ends.
    #[must_use]
    pub fn farewell(&self) -> LeaveHandle {
        LeaveHandle(Arc::clone(&self.lines))
    }

    /// Ranks of the other processes, beginning with the rank after this process's own, so that not
    /// all processes send to the same process first.
    fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let (rank, size) = (self.rank, self.size);
        (1..size).map(move |distance| (rank + distance) % size)
    }

    /// Waits for the next message of process `rank`.
    fn receive(&mut self, rank: usize) -> Result<Incoming, ExchangeError> {
        loop {
            match self.waiting[rank].pop_front() {
                Some(Incoming::Left(Some((lost, why)))) => return Err(self.lost(lost, why)),
                Some(Incoming::Left(None)) => {
                    self.waiting[rank].push_front(Incoming::Left(None));
                    return Err(ExchangeError::Failed { rank });
                }
                Some(Incoming::Lost(why)) => return Err(self.lost(rank, why)),
                Some(message) => return Ok(message),
                None => {}
            }
            match self.incoming.recv() {
                // Without the lost process, no exchange can be completed, so this is an error even
                // if `rank` is another process.
                Ok((lost, Incoming::Lost(why))) => return Err(self.lost(lost, why)),
                Ok((from, message)) => self.waiting[from].push_back(message),
                Err(_) => return Err(self.lost(rank, "the connection is closed".to_owned())),
            }
        }
    }

    fn lost(&mut self, rank: usize, why: String) -> ExchangeError {
        if let Some(waiting) = self.waiting.get_mut(rank) {
            waiting.push_front(Incoming::Lost(why.clone()));
        }
        self.lines.lost((rank, why.clone()));
        ExchangeError::Lost { rank, here: self.rank, why }
    }
}

impl Exchange for Sockets {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn begin(&mut self, mut parts: Vec<Tensor>) -> Result<(), ExchangeError> {
        if parts.len() != self.size {
            return Err(ExchangeError::Garbled { rank: self.rank });
        }
        for rank in self.others() {
            self.lines.send(rank, Outgoing::Part(on_host(&parts[rank])?));
        }
        self.own.push_back(parts.swap_remove(self.rank));
        Ok(())
    }

    fn end(&mut self) -> Result<Vec<Tensor>, ExchangeError> {
        let own_part = self.own.pop_front().ok_or(ExchangeError::Garbled { rank: self.rank })?;
        let device: Device = own_part.device().clone();
        let mut received = vec![own_part; self.size];
        for rank in self.others() {
            let Incoming::Part(values) = self.receive(rank)? else {
                return Err(ExchangeError::Garbled { rank });
            };
            let length = values.len();
            received[rank] = Tensor::from_vec(values, length, &device)?;
        }
        Ok(received)
    }

    fn gather(&mut self, message: Vec<u8>) -> Result<Vec<Vec<u8>>, ExchangeError> {
        for rank in self.others() {
            self.lines.send(rank, Outgoing::Fact(message.clone()));
        }
        let mut all = vec![Vec::new(); self.size];
        for rank in self.others() {
            let Incoming::Fact(fact) = self.receive(rank)? else {
                return Err(ExchangeError::Garbled { rank });
            };
            all[rank] = fact;
        }
        all[self.rank] = message;
        Ok(all)
    }
}

/// Returns the one-dimensional tensor `part` in main memory. A tensor that is there already is
/// returned unchanged. (`Tensor::to_device` would copy the whole buffer of which `part` is a
/// range.)
fn on_host(part: &Tensor) -> candle_core::Result<Tensor> {
    match part.device() {
        Device::Cpu => Ok(part.clone()),
        _ => Tensor::new(part.to_vec1::<f32>()?, &Device::Cpu),
    }
}

impl Drop for Sockets {
    fn drop(&mut self) {
        self.lines.leave();
    }
}
