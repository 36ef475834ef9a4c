//! Threads of one process as the processes of a training: for tests, and for whoever has cores
//! enough for several small models' steps at once.

use std::sync::mpsc::{Receiver, Sender, channel};

use candle_core::Tensor;

use super::{Exchange, ExchangeError};

/// What one tells another.
#[derive(Debug)]
enum Message {
    Part(Tensor),
    Fact(Vec<u8>),
}

/// One of several threads that train one model together.
#[derive(Debug)]
pub struct InProcess {
    rank: usize,
    /// To each thread, this one included.
    to: Vec<Sender<Message>>,
    /// From each thread.
    from: Vec<Receiver<Message>>,
}

/// The connections of `size` threads, by rank.
#[must_use]
pub fn in_process(size: usize) -> Vec<InProcess> {
    let mut all: Vec<InProcess> =
        (0..size).map(|rank| InProcess { rank, to: Vec::new(), from: Vec::new() }).collect();
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
    /// Sends each its message, and receives one of each.
    fn swap(
        &self,
        messages: impl Iterator<Item = Result<Message, ExchangeError>>,
    ) -> Result<Vec<Message>, ExchangeError> {
        for (rank, message) in messages.enumerate() {
            let lost = |_| ExchangeError::Failed { rank };
            self.to
                .get(rank)
                .map_or(Ok(()), |to| Ok(message?).and_then(|it| to.send(it).map_err(lost)))?;
        }
        let received = self.from.iter().enumerate();
        received
            .map(|(rank, from)| from.recv().map_err(|_| ExchangeError::Failed { rank }))
            .collect()
    }
}

impl Exchange for InProcess {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.to.len()
    }

    fn exchange(&mut self, parts: Vec<Tensor>) -> Result<Vec<Tensor>, ExchangeError> {
        // Parts may be views of buffers that are written to again before others have read them.
        let copies = parts.iter().map(|part| Ok(Message::Part(part.copy()?)));
        let received = self.swap(copies)?.into_iter().enumerate();
        received
            .map(|(rank, message)| match message {
                Message::Part(part) => Ok(part),
                Message::Fact(_) => Err(ExchangeError::Garbled { rank }),
            })
            .collect()
    }

    fn gather(&mut self, message: Vec<u8>) -> Result<Vec<Vec<u8>>, ExchangeError> {
        let copies = std::iter::repeat_n(message, self.to.len());
        let received = self.swap(copies.map(|message| Ok(Message::Fact(message))))?;
        received
            .into_iter()
            .enumerate()
            .map(|(rank, message)| match message {
                Message::Fact(fact) => Ok(fact),
                Message::Part(_) => Err(ExchangeError::Garbled { rank }),
            })
            .collect()
    }
}
