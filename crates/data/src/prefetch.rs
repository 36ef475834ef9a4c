//! Assembles batches on a separate thread before the training needs them, so that it need not wait
//! for them.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::JoinHandle;

use crate::text::panics::message_of;
use crate::{Batch, Epochs, Error, Position, Result};

/// A batch with its position in the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prefetched {
    /// Position of the batch.
    pub position: Position,
    /// The batch.
    pub batch: Batch,
}

/// Largest number of batches that are made in advance. It is limited because the channel allocates
/// memory for all of them.
const MOST_AHEAD: usize = 1024;

/// Iterator over the batches at a sequence of positions. If a batch cannot be read, or the thread
/// panics, it yields an error and then ends.
///
/// The batches depend only on the arguments, not on the timing of the thread. The thread ends when
/// this value is dropped.
pub struct Prefetcher {
    receiver: Option<Receiver<Result<Prefetched>>>,
    thread: Option<JoinHandle<()>>,
    /// Iterator that makes the batches on the caller's thread, if no thread could be started.
    here: Option<Box<dyn Iterator<Item = Result<Prefetched>> + Send>>,
}

impl Prefetcher {
    /// Yields the batches of `epochs` at `places`, for example at [`Epochs::positions`]. The thread
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
                // The receiver no longer exists if the prefetcher was dropped.
                if sender.send(item).is_err() || failed {
                    return;
                }
            }
        });
        match started {
            Ok(thread) => Self { receiver: Some(receiver), thread: Some(thread), here: None },
            // If no thread can be started, perhaps for lack of memory, the caller makes the
            // batches.
            Err(_) => Self { receiver: None, thread: None, here: Some(Box::new(batches())) },
        }
    }

    /// Waits for the end of the thread. If the thread panicked, returns this as an error.
    fn panic(&mut self) -> Option<Error> {
        self.receiver = None;
        let panic = self.thread.take()?.join().err()?;
        Some(Error::BatchThread { reason: message_of(&*panic) })
    }
}

impl Iterator for Prefetcher {
    type Item = Result<Prefetched>;

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.here {
            Some(iterator) => {
                let item = iterator.next();
                // There are no more batches after an error, just as if a thread made them.
                if !matches!(item, Some(Ok(_))) {
                    self.here = None;
                }
                item
            }
            None => self.receiver.as_ref()?.recv().ok().or_else(|| self.panic().map(Err)),
        }
    }
}

impl Drop for Prefetcher {
    fn drop(&mut self) {
        // The receiver must be dropped before the thread is joined: a thread that waits to send
        // would never end.
        drop(self.receiver.take());
        if let Some(thread) = self.thread.take() {
            // If the thread panicked, its message was already printed, and no batch is wanted.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_thread_an_error_is_the_last_item() {
        let failed = || Err(Error::BatchThread { reason: "no batch".to_owned() });
        let here = Some(Box::new(std::iter::repeat_with(failed)) as Box<_>);
        let mut batches = Prefetcher { receiver: None, thread: None, here };
        assert!(batches.next().is_some_and(|item| item.is_err()));
        assert!(batches.next().is_none());
    }
}
