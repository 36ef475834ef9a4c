//! Connections of a process to the other processes during training. Threads read from the
//! connections, and send messages and signs of life.
//!
//! A process has three threads for each other process. The first reads all data as they arrive. So
//! two processes that send to each other at the same time never block each other. The second sends
//! messages in order, while the process computes. The third sends a sign of life every second.

use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use candle_core::{Storage, Tensor};

use super::frame::{FrameKind, Patience, as_bytes};
use super::stream::Stream;

/// Longest time that a process waits, before it ends, for the others to read the notice of its end.
/// The time begins when all of its messages are written.
const FAREWELL: Duration = Duration::from_secs(2);

/// Message or event from another process.
#[derive(Debug)]
pub(super) enum Incoming {
    Part(Vec<f32>),
    Fact(Vec<u8>),
    /// The other process has announced that it ends. If it ends because a third process was lost,
    /// this is the loss; otherwise `None`, and the other process reports its error itself.
    Left(Option<Loss>),
    /// The other process has disappeared or cannot be reached any more; the text is the reason.
    Lost(String),
}

/// Rank of a process that was lost, and reason why it counts as lost.
pub(super) type Loss = (usize, String);

/// Function that is called when a process is lost. Arguments: rank of that process, and reason why
/// it counts as lost.
pub type OnProcessLoss = Box<dyn Fn(usize, &str) + Send + Sync>;

/// Message to another process.
#[derive(Debug)]
pub(super) enum Outgoing {
    /// One-dimensional f32 tensor in main memory.
    Part(Tensor),
    Fact(Vec<u8>),
    /// This process ends, and sends nothing after this message. The content is the reason, as JSON.
    Leave(Vec<u8>),
}

/// Message in the queue of a connection. It counts as unsent until it is dropped, also if it is
/// never written.
struct Unsent {
    message: Outgoing,
    count: Arc<AtomicUsize>,
}

impl Unsent {
    fn new(message: Outgoing, count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::AcqRel);
        Self { message, count: Arc::clone(count) }
    }
}

impl Drop for Unsent {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::AcqRel);
    }
}

struct Line {
    stream: Stream,
    /// Locked while a frame is written.
    writing: Mutex<()>,
    /// Queue of the messages to send, in order.
    outgoing: Sender<Unsent>,
}

/// Connections to the other processes, by rank.
pub(super) struct Lines {
    lines: Vec<Option<Line>>,
    patience: Patience,
    /// Number of messages that wait to be written.
    unsent: Arc<AtomicUsize>,
    /// For each rank, whether that process has read that this process ends, or has ended itself. If
    /// so, this process need not wait for it any more.
    quiet: Mutex<Vec<bool>>,
    changed: Condvar,
    closing: AtomicBool,
    /// Loss of another process because of which this process ends; `None` if it ends for another
    /// reason.
    loss: Mutex<Option<Loss>>,
    on_loss: OnProcessLoss,
}

impl Lines {
    /// Starts the threads for `streams`. All received messages are passed to `incoming`, each with
    /// the sender's rank.
    pub(super) fn open(
        streams: Vec<Option<Stream>>,
        patience: Patience,
        incoming: &Sender<(usize, Incoming)>,
        on_loss: OnProcessLoss,
    ) -> io::Result<Arc<Self>> {
        let mut queues: Vec<Option<Receiver<Unsent>>> = Vec::new();
        let line = |stream: Option<Stream>| {
            let (outgoing, queue) = channel();
            queues.push(stream.is_some().then_some(queue));
            let Some(stream) = stream else { return Ok(None) };
            stream.apply(patience)?;
            Ok(Some(Line { stream, writing: Mutex::new(()), outgoing }))
        };
        let lines = streams.into_iter().map(line).collect::<io::Result<Vec<_>>>()?;
        // There is no connection from this process to itself.
        let quiet = lines.iter().map(Option::is_none).collect();
        let lines = Arc::new(Self {
            lines,
            patience,
            unsent: Arc::default(),
            quiet: Mutex::new(quiet),
            changed: Condvar::new(),
            closing: AtomicBool::new(false),
            loss: Mutex::new(None),
            on_loss,
        });
        for (rank, queue) in queues.into_iter().enumerate() {
            let Some(queue) = queue else { continue };
            let start = |name: &str, work: Box<dyn FnOnce() + Send>| {
                std::thread::Builder::new().name(format!("{name} {rank}")).spawn(work).map(drop)
            };
            let (all, incoming) = (Arc::clone(&lines), incoming.clone());
            start("from", Box::new(move || all.listen(rank, &incoming)))?;
            let all = Arc::clone(&lines);
            start("alive to", Box::new(move || all.beat(rank)))?;
            let all = Arc::clone(&lines);
            start("to", Box::new(move || all.write(rank, &queue)))?;
        }
        Ok(lines)
    }

    /// Sends a message to process `rank`, after all earlier messages, without waiting. If that
    /// process cannot be reached any more, this function reports no error. There is an error the
    /// next time that this process waits for a message from it.
    pub(super) fn send(&self, rank: usize, frame: Outgoing) {
        if let Some(line) = self.lines.get(rank).and_then(Option::as_ref) {
            let _ = line.outgoing.send(Unsent::new(frame, &self.unsent));
        }
    }

    /// Writes the messages in `queue` to process `rank`, until this process ends.
    fn write(&self, rank: usize, queue: &Receiver<Unsent>) {
        let mut is_open = true;
        for unsent in queue {
            // If a message cannot be sent, the other process has ended. The error is not reported
            // here, but when this process waits for a message from the other one.
            is_open = is_open && self.write_whole(rank, &unsent.message).is_ok();
            if matches!(unsent.message, Outgoing::Leave(_)) {
                return;
            }
        }
    }

    fn write_whole(&self, rank: usize, frame: &Outgoing) -> io::Result<()> {
        let part = match frame {
            Outgoing::Fact(bytes) => return self.write_frame(rank, FrameKind::Fact, bytes),
            Outgoing::Leave(reason) => return self.write_frame(rank, FrameKind::Leave, reason),
            Outgoing::Part(part) => part,
        };
        let (storage, layout) = part.storage_and_layout();
        let values = match (&*storage, layout.contiguous_offsets()) {
            (Storage::Cpu(storage), Some((start, end))) => {
                storage.as_slice::<f32>().ok().and_then(|values| values.get(start..end))
            }
            _ => None,
        };
        let values = values.ok_or(ErrorKind::InvalidData)?;
        self.write_frame(rank, FrameKind::Part, &as_bytes(values))
    }

    fn write_frame(&self, rank: usize, kind: FrameKind, content: &[u8]) -> io::Result<()> {
        let Some(line) = self.lines.get(rank).and_then(Option::as_ref) else { return Ok(()) };
        let _writing = lock(&line.writing);
        self.patience.write_frame(&line.stream, kind, content)
    }

    /// Reads the messages of process `rank`, until that process has ended.
    fn listen(&self, rank: usize, incoming: &Sender<(usize, Incoming)>) {
        let Some(line) = &self.lines[rank] else { return };
        let (stream, patience) = (&line.stream, self.patience);
        let mut has_left = false;
        let error = loop {
            let next = patience.read_header(stream).and_then(|(kind, length)| {
                Ok(match kind {
                    FrameKind::Part => Some(Incoming::Part(patience.read_values(stream, length)?)),
                    FrameKind::Fact => Some(Incoming::Fact(patience.read_bytes(stream, length)?)),
                    FrameKind::Leave => {
                        let reason = patience.read_bytes(stream, length)?;
                        Some(Incoming::Left(serde_json::from_slice(&reason).unwrap_or_default()))
                    }
                    FrameKind::Heard => {
                        self.set_quiet(rank);
                        None
                    }
                    FrameKind::Alive => None,
                    FrameKind::Addresses
                    | FrameKind::Ready
                    | FrameKind::Offer
                    | FrameKind::Taken => {
                        return Err(ErrorKind::InvalidData.into());
                    }
                })
            });
            match next {
                Ok(Some(message)) => {
                    if matches!(message, Incoming::Left(_)) {
                        has_left = true;
                        let _ = self.write_frame(rank, FrameKind::Heard, &[]);
                    }
                    // If this process is ending, the message has no receiver, which is no error.
                    let _ = incoming.send((rank, message));
                }
                Ok(None) => {}
                Err(error) => break error,
            }
        };
        self.set_quiet(rank);
        if has_left || self.closing.load(Ordering::Acquire) {
            return;
        }
        let why = self.words(&error);
        let _ = incoming.send((rank, Incoming::Lost(why.clone())));
        (self.on_loss)(rank, &why);
    }

    fn words(&self, error: &io::Error) -> String {
        match error.kind() {
            ErrorKind::UnexpectedEof
            | ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::BrokenPipe => "it ended without a message, as if killed".to_owned(),
            ErrorKind::TimedOut => format!(
                "nothing was heard from this process for {} s",
                (self.patience.beat * self.patience.beats).as_secs()
            ),
            ErrorKind::InvalidData => {
                "this process sent data that the program does not understand".to_owned()
            }
            _ => error.to_string(),
        }
    }

    /// Sends a sign of life to process `rank` in each beat (about one second), until this process
    /// ends.
    fn beat(&self, rank: usize) {
        let Some(line) = &self.lines[rank] else { return };
        while !self.closing.load(Ordering::Acquire) {
            // If the lock is taken, a frame is being written, which is a sign of life, too.
            if let Ok(_writing) = line.writing.try_lock()
                && self.patience.write_frame(&line.stream, FrameKind::Alive, &[]).is_err()
            {
                return;
            }
            let quiet = lock(&self.quiet);
            drop(self.changed.wait_timeout(quiet, self.patience.beat));
        }
    }

    fn set_quiet(&self, rank: usize) {
        lock(&self.quiet)[rank] = true;
        self.changed.notify_all();
    }

    /// Records the loss of another process because of which this process ends. Only the first loss
    /// is kept.
    pub(super) fn lost(&self, loss: Loss) {
        lock(&self.loss).get_or_insert(loss);
    }

    /// Sends all other processes a message that this one ends, and waits until they have read it.
    /// The wait ends at the latest [`FAREWELL`] after all messages were written.
    pub(super) fn leave(&self) {
        if self.closing.swap(true, Ordering::AcqRel) {
            return;
        }
        let reason = serde_json::to_vec(&*lock(&self.loss)).unwrap_or_default();
        for rank in 0..self.lines.len() {
            self.send(rank, Outgoing::Leave(reason.clone()));
        }
        let mut deadline = Instant::now() + FAREWELL;
        let mut quiet = lock(&self.quiet);
        while !quiet.iter().all(|&heard| heard) {
            // As long as there are unsent messages, the wait continues. It ends, because the
            // writing thread gives up a connection that accepts no more bytes.
            if self.unsent.load(Ordering::Acquire) > 0 {
                deadline = Instant::now() + FAREWELL;
            }
            let Some(left) = deadline.checked_duration_since(Instant::now()) else { break };
            let left = left.min(self.patience.beat);
            quiet = self
                .changed
                .wait_timeout(quiet, left)
                .map_or_else(|poisoned| poisoned.into_inner().0, |(quiet, _)| quiet);
        }
        drop(quiet);
        for line in self.lines.iter().flatten() {
            let _ = line.stream.shutdown();
        }
    }
}

/// Locks `mutex`, even if a thread has panicked while it held the lock, because no thread can panic
/// in the middle of a change.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    /// The other process is silent: its machine has failed, or it is stopped.
    #[test]
    fn a_message_after_the_farewell_does_not_delay_the_end() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let near = TcpStream::connect(listener.local_addr().expect("an address")).expect("open");
        let (far, _) = listener.accept().expect("open");
        let (incoming, _messages) = channel();
        let streams = vec![None, Some(Stream::Tcp(near))];
        let lines = Lines::open(streams, Patience::USUAL, &incoming, Box::new(|_, _| {}));
        let lines = lines.expect("threads");
        let leaving = {
            let lines = Arc::clone(&lines);
            std::thread::spawn(move || {
                let began = Instant::now();
                lines.leave();
                began.elapsed()
            })
        };
        while Patience::USUAL.read_header(&far).expect("a frame").0 == FrameKind::Alive {}
        lines.send(1, Outgoing::Fact(vec![7]));
        let took = leaving.join().expect("left");
        assert!(took < Duration::from_secs(15), "{took:?}");
    }
}
