//! Exchange between threads that take the role of processes in a training. It is used in tests, to
//! train a small model with several threads, and to estimate the duration of a training over a
//! network of a given speed.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use candle_core::Tensor;

use super::{Exchange, ExchangeError};

/// Content of a message between threads.
#[derive(Debug)]
enum Content {
    Part(Tensor),
    Fact(Vec<u8>),
}

/// Message with the time of its arrival, before which it cannot be received.
#[derive(Debug)]
struct Message {
    arrives: Instant,
    content: Content,
}

/// Simulated network of limited speed. Each process sends a limited number of bytes per second, one
/// message after the other, and each message arrives after a delay.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Network {
    /// Number of bytes that one process can send per second. It must be positive.
    pub bytes_per_second: f64,
    /// Time between the sending and the arrival of a byte.
    pub delay: Duration,
}

impl Network {
    /// Returns the times at which a message of `bytes` bytes has been sent and at which it arrives,
    /// if its sending begins at `start`. Returns `None` if it never arrives.
    fn times(self, start: Instant, bytes: usize) -> Option<(Instant, Instant)> {
        let seconds = bytes as f64 / self.bytes_per_second;
        let sent = start.checked_add(Duration::try_from_secs_f64(seconds).ok()?)?;
        Some((sent, sent.checked_add(self.delay)?))
    }
}

/// Connection of one of several threads that train a model together.
#[derive(Debug)]
pub struct InProcess {
    rank: usize,
    /// Channels to all threads, including this one, by rank.
    to: Vec<Sender<Message>>,
    /// Channels from all threads, including this one, by rank.
    from: Vec<Receiver<Message>>,
    network: Option<Network>,
    /// Time at which the simulated network will have sent all messages of this thread.
    free: Instant,
}

/// Connects `size` threads, and returns their connections by rank.
#[must_use]
pub fn in_process(size: usize) -> Vec<InProcess> {
    connected(size, None)
}

/// Connects `size` threads over a simulated network, and returns their connections by rank. A
/// message can be received only when `network` would have delivered it.
#[must_use]
pub fn in_process_over(size: usize, network: Network) -> Vec<InProcess> {
    connected(size, Some(network))
}

fn connected(size: usize, network: Option<Network>) -> Vec<InProcess> {
    let free = Instant::now();
    let one = |rank| InProcess { rank, to: Vec::new(), from: Vec::new(), network, free };
    let mut all: Vec<InProcess> = (0..size).map(one).collect();
    for receiver in 0..size {
        for sender in 0..size {
            let (to, from) = channel();
            all[sender].to.push(to);
            all[receiver].from.push(from);
        }
    }
    all
}

impl InProcess {
    /// Sends `content`, which counts as a message of `bytes` bytes, to process `rank`.
    fn send(&mut self, rank: usize, content: Content, bytes: usize) -> Result<(), ExchangeError> {
        let now = Instant::now();
        let arrives = match self.network {
            Some(network) if rank != self.rank => {
                let Some((free, arrives)) = network.times(self.free.max(now), bytes) else {
                    return Err(ExchangeError::Rendezvous(format!(
                        "a simulated network of {} bytes per second never delivers a message: \
                         bytes_per_second must be a positive number",
                        network.bytes_per_second
                    )));
                };
                self.free = free;
                arrives
            }
            _ => now,
        };
        let Some(to) = self.to.get(rank) else { return Err(ExchangeError::Garbled { rank }) };
        to.send(Message { arrives, content }).map_err(|_| ExchangeError::Failed { rank })
    }

    /// Waits for the next message of process `rank`, and returns its content.
    fn receive(&self, rank: usize) -> Result<Content, ExchangeError> {
        let message = self.from[rank].recv().map_err(|_| ExchangeError::Failed { rank })?;
        std::thread::sleep(message.arrives.saturating_duration_since(Instant::now()));
        Ok(message.content)
    }

    /// All ranks, beginning with the rank after this process's own, so that not all processes send
    /// to the same process first.
    fn ranks(&self) -> impl Iterator<Item = usize> + use<> {
        let (rank, size) = (self.rank, self.to.len());
        (1..=size).map(move |distance| (rank + distance) % size)
    }
}

impl Exchange for InProcess {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.to.len()
    }

    fn begin(&mut self, parts: Vec<Tensor>) -> Result<(), ExchangeError> {
        for rank in self.ranks() {
            let part = parts.get(rank).ok_or(ExchangeError::Garbled { rank: self.rank })?;
            let bytes = part.elem_count() * size_of::<f32>();
            // The receiver gets a copy, because `part` can be a range of a larger buffer, which is
            // overwritten later. (`Tensor::copy` would copy that whole buffer.)
            self.send(rank, Content::Part(part.force_contiguous()?), bytes)?;
        }
        Ok(())
    }

    fn end(&mut self) -> Result<Vec<Tensor>, ExchangeError> {
        let part = |rank| match self.receive(rank)? {
            Content::Part(part) => Ok(part),
            Content::Fact(_) => Err(ExchangeError::Garbled { rank }),
        };
        (0..self.size()).map(part).collect()
    }

    fn gather(&mut self, message: Vec<u8>) -> Result<Vec<Vec<u8>>, ExchangeError> {
        for rank in self.ranks() {
            self.send(rank, Content::Fact(message.clone()), message.len())?;
        }
        let fact = |rank| match self.receive(rank)? {
            Content::Fact(fact) => Ok(fact),
            Content::Part(_) => Err(ExchangeError::Garbled { rank }),
        };
        (0..self.size()).map(fact).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::{DType, Device};

    #[test]
    fn a_network_takes_the_time_of_its_bytes_and_its_delay() {
        let delay = Duration::from_millis(30);
        let network = Network { bytes_per_second: 4e6, delay };
        let mut both = in_process_over(2, network);
        let began = Instant::now();
        for one in &mut both {
            for _ in 0..2 {
                // Each part has 200,000 bytes, for which the network needs 50 ms.
                let part = Tensor::zeros(50_000, DType::F32, &Device::Cpu).expect("zeros");
                one.begin(vec![part; 2]).expect("begun");
            }
        }
        both[0].end().expect("the first");
        assert!(began.elapsed() >= Duration::from_millis(80), "{:?}", began.elapsed());
        both[0].end().expect("the second");
        assert!(began.elapsed() >= Duration::from_millis(130), "{:?}", began.elapsed());
    }

    #[test]
    fn a_network_without_speed_is_an_error() {
        for bytes_per_second in [0.0, -1.0, f64::NAN, 1e-300] {
            let network = Network { bytes_per_second, delay: Duration::ZERO };
            let mut both = in_process_over(2, network);
            let error = both[0].gather(vec![7]).expect_err("nothing arrives").to_string();
            assert!(error.contains(&format!("{bytes_per_second} bytes per second")), "{error}");
        }
        let network = Network { bytes_per_second: f64::INFINITY, delay: Duration::ZERO };
        assert!(network.times(Instant::now(), 7).is_some());
    }
}
