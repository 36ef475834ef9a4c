//! Assembles batches on a thread of its own, ahead of the trainer.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::JoinHandle;

use crate::{Batch, BatchingConfig, Dataset, EpochPlan, Position, Result};

/// A batch and its place in the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prefetched {
    /// The place of this batch.
    pub position: Position,
    /// The place of the one after it: what to save in order to resume once this batch is done.
    pub next: Position,
    /// The number of batches in this epoch.
    pub epoch_batches: usize,
    /// The batch.
    pub batch: Batch,
}

/// The most batches that are made ahead; the channel takes room for all of them at once.
const MOST_AHEAD: usize = 1024;

/// Yields batches from a position on, epoch after epoch, without end (unless the data set is empty,
/// or cannot be read any more).
///
/// What it yields depends on its arguments alone, not on the thread's timing. Dropping it stops the
/// thread.
pub struct Prefetcher {
    receiver: Option<Receiver<Result<Prefetched>>>,
    thread: Option<JoinHandle<()>>,
    /// Without a thread.
    upcoming: Option<Upcoming>,
}

impl Prefetcher {
    /// Starts at `position`. One past the last batch of an epoch means the first of the next.
    pub fn new(
        dataset: Arc<dyn Dataset>,
        config: &BatchingConfig,
        seed: u64,
        position: Position,
    ) -> Self {
        let (sender, receiver) = sync_channel(config.prefetch.clamp(1, MOST_AHEAD));
        let upcoming = || Upcoming::new(Arc::clone(&dataset), config.clone(), seed, position);
        let ahead = upcoming();
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
            Ok(thread) => Self { receiver: Some(receiver), thread: Some(thread), upcoming: None },
            // Where the system gives no thread, for want of memory perhaps, the caller does it.
            Err(_) => Self { receiver: None, thread: None, upcoming: Some(upcoming()) },
        }
    }
}

impl Iterator for Prefetcher {
    type Item = Result<Prefetched>;

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.upcoming {
            Some(upcoming) => upcoming.next(),
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

/// The batches from a position on, on the calling thread.
struct Upcoming {
    dataset: Arc<dyn Dataset>,
    config: BatchingConfig,
    seed: u64,
    position: Position,
    plan: Box<dyn EpochPlan>,
}

impl Upcoming {
    fn new(
        dataset: Arc<dyn Dataset>,
        config: BatchingConfig,
        seed: u64,
        position: Position,
    ) -> Self {
        let plan = Arc::clone(&dataset).plan(&config, seed, position.epoch);
        Self { dataset, config, seed, position, plan }
    }
}

impl Iterator for Upcoming {
    type Item = Result<Prefetched>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.position.batch >= self.plan.batches() {
            self.position = Position { epoch: self.position.epoch + 1, batch: 0 };
            let dataset = Arc::clone(&self.dataset);
            self.plan = dataset.plan(&self.config, self.seed, self.position.epoch);
            if self.plan.batches() == 0 {
                return None;
            }
        }
        let position = self.position;
        self.position.batch += 1;
        let next = if self.position.batch == self.plan.batches() {
            Position { epoch: position.epoch + 1, batch: 0 }
        } else {
            self.position
        };
        let batch = self.plan.batch(position.batch);
        Some(batch.map(|batch| Prefetched {
            position,
            next,
            epoch_batches: self.plan.batches(),
            batch,
        }))
    }
}
