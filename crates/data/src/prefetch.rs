//! Assembles batches on a separate thread, ahead of the trainer.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::JoinHandle;

use crate::{Batch, Epochs, Position, Result};

/// Batch with its position in the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prefetched {
    /// Position of the batch.
    pub position: Position,
    /// The batch.
    pub batch: Batch,
}

/// Largest number of batches made ahead, limited because the channel allocates room for all of
/// them.
const MOST_AHEAD: usize = 1024;

/// Yields the batches at a sequence of positions, until its end or a failure to read.
///
/// Output depends only on its arguments, not on the thread's timing. Dropping it stops the thread.
pub struct Prefetcher {
    receiver: Option<Receiver<Result<Prefetched>>>,
    thread: Option<JoinHandle<()>>,
    /// Iterator used without a thread.
    here: Option<Box<dyn Iterator<Item = Result<Prefetched>> + Send>>,
}

impl Prefetcher {
    /// Yields the batches of `epochs` at `places`, such as [`Epochs::positions`]; the thread
    /// iterates over `places`.
    pub fn new(
        epochs: &Arc<Epochs>,
        places: impl Iterator<Item = Position> + Clone + Send + 'static,
    ) -> Self {
        let (sender, receiver) = sync_channel(epochs.batching().prefetch.clamp(1, MOST_AHEAD));
        let batches = || {
            let epochs = Arc::clone(epochs);
            places.clone().map(move |position| {
                epochs.batch(position).map(|batch| Prefetched { position, batch })
            })
        };
        let ahead = batches();
        let started = std::thread::Builder::new().name("batches".to_owned()).spawn(move || {
            for item in ahead {
                let failed = item.is_err();
                // The receiver is gone once the prefetcher is dropped.
                if sender.send(item).is_err() || failed {
                    return;
                }
            }
        });
        match started {
            Ok(thread) => Self { receiver: Some(receiver), thread: Some(thread), here: None },
            // If the system refuses a thread, perhaps for lack of memory, the caller does the work.
            Err(_) => Self { receiver: None, thread: None, here: Some(Box::new(batches())) },
        }
    }
}

impl Iterator for Prefetcher {
    type Item = Result<Prefetched>;

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.here {
            Some(iterator) => iterator.next(),
            None => self.receiver.as_ref()?.recv().ok(),
        }
    }
}

impl Drop for Prefetcher {
    fn drop(&mut self) {
        // The channel is dropped first: a thread that waits to send could never be joined.
        drop(self.receiver.take());
        if let Some(thread) = self.thread.take() {
            // If the thread has panicked, it has already ended the iteration and reported the
            // panic.
            let _ = thread.join();
        }
    }
}
