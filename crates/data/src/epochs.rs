//! Plans epochs, so that any batch of a training can be requested by its epoch and its number in
//! the epoch.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::{Batch, BatchingConfig, Dataset, Epoch, EpochPlan, Position, Result};

/// Plan of an epoch (its division into batches), which is made once.
type Planned = OnceLock<Arc<dyn EpochPlan>>;

/// Endless sequence of the epochs of a data set.
///
/// An epoch is planned by the first thread that requests it. Planning is slow, because it may sort
/// the whole text, so the last two plans are kept.
pub struct Epochs {
    dataset: Arc<dyn Dataset>,
    batching: BatchingConfig,
    seed: u64,
    /// Plans of the epochs that were requested last, each with the number of its epoch, in the
    /// order of the requests.
    plans: Mutex<Vec<(u64, Arc<Planned>)>>,
}

impl Epochs {
    /// Makes the epochs of `dataset`. `seed` determines the order of each epoch.
    pub fn new(dataset: Arc<dyn Dataset>, batching: &BatchingConfig, seed: u64) -> Self {
        Self { dataset, batching: batching.clone(), seed, plans: Mutex::default() }
    }

    /// Settings that determine how an epoch is divided into batches.
    pub fn batching(&self) -> &BatchingConfig {
        &self.batching
    }

    /// Returns the plan of the epoch `epoch`. If it does not exist yet, this thread makes it.
    pub fn plan(&self, epoch: u64) -> Arc<dyn EpochPlan> {
        let mut plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        let plan = match plans.iter().position(|(planned, _)| *planned == epoch) {
            Some(place) => plans.remove(place).1,
            None => {
                // The oldest plan is dropped before the new plan is made, because memory use is
                // highest while a plan is made.
                let surplus = plans.len().saturating_sub(1);
                plans.drain(..surplus);
                Arc::default()
            }
        };
        plans.push((epoch, Arc::clone(&plan)));
        // The lock is released here, so that a thread that needs another epoch does not wait for
        // this plan.
        drop(plans);
        let epoch = Epoch::new(self.seed, epoch);
        let make = || Arc::clone(&self.dataset).plan(&self.batching, epoch).into();
        Arc::clone(plan.get_or_init(make))
    }

    /// Drops the plans of epochs before `epoch`.
    pub fn forget_before(&self, epoch: u64) {
        let mut plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        plans.retain(|(planned, _)| *planned >= epoch);
    }

    /// The batch at a position.
    ///
    /// # Errors
    ///
    /// If the data can no longer be read.
    ///
    /// # Panics
    ///
    /// If the epoch has no such batch.
    pub fn batch(&self, position: Position) -> Result<Batch> {
        self.plan(position.epoch).batch(position.batch)
    }

    /// Positions of batches from `first` on. After an epoch the next one begins, so the iterator
    /// never ends. For an empty data set, it yields nothing. If `first` is after the last batch of
    /// an epoch, the positions begin with the next epoch.
    pub fn positions(self: &Arc<Self>, first: Position) -> Positions {
        Positions { epochs: Arc::clone(self), next: first }
    }
}

/// Iterator over the positions of batches, made by [`Epochs::positions`].
#[derive(Clone)]
pub struct Positions {
    epochs: Arc<Epochs>,
    next: Position,
}

impl Iterator for Positions {
    type Item = Position;

    fn next(&mut self) -> Option<Position> {
        if self.next.batch >= self.epochs.plan(self.next.epoch).batches() {
            self.next = Position { epoch: self.next.epoch + 1, batch: 0 };
            if self.epochs.plan(self.next.epoch).batches() == 0 {
                return None;
            }
        }
        let position = self.next;
        self.next.batch += 1;
        Some(position)
    }
}
