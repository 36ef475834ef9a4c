//! Assembles batches on a thread of its own, ahead of the trainer.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::JoinHandle;

use crate::{Batch, Epochs, Position, Result};

/// A batch and its place in the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prefetched {
    /// The place of this batch.
    pub position: Position,
    /// The batch.
    pub batch: Batch,
}

/// The most batches that are made ahead; the channel takes room for all of them at once.
const MOST_AHEAD: usize = 1024;

/// Yields the batches of a sequence of places, up to its end or to data that cannot be read any
/// more.
///
/// What it yields depends on its arguments alone, not on the thread's timing. Dropping it stops the
/// thread.
pub struct Prefetcher {
    receiver: Option<Receiver<Result<Prefetched>>>,
    thread: Option<JoinHandle<()>>,
    /// Without a thread.
    here: Option<Box<dyn Iterator<Item = Result<Prefetched>> + Send>>,
}

impl Prefetcher {
    /// Batches of `epochs` at `places`, as [`Epochs::positions`] has all of them; `places` is asked
    /// on the thread.
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
            // Where the system gives no thread, for want of memory perhaps, the caller does it.
            Err(_) => Self { receiver: None, thread: None, here: Some(Box::new(batches())) },
        }
    }
}

impl Iterator for Prefetcher {
    type Item = Result<Prefetched>;

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.here {
            Some(here) => here.next(),
            None => self.receiver.as_ref()?.recv().ok(),
        }
    }
}

impl Drop for Prefetcher {
    fn drop(&mut self) {
        // The channel first: a thread that waits to send would never be joined.
        drop(self.receiver.take());
        if let Some(thread) = self.thread.take() {
            // A panic there has already ended the iteration and been reported by the thread.
            let _ = thread.join();
        }
    }
}
