//! Batches of the data for the trainer, which requests them by position. They are prepared before
//! they are requested.

use std::ops::Range;
use std::sync::Arc;

use taper_data::{BatchingConfig, Dataset, Epoch, Epochs, Positions, Prefetcher};
use taper_model::{Batch, Sequences};
use taper_trainer::{BoxError, Position, Source, balanced};

/// Training batches. A thread prepares the batches that are expected next. It expects that all
/// updates have the same number of micro-batches. A batch that was not expected is made when it is
/// requested.
///
/// The trainer adds up the gradients of an update in the order of a binary tree, whose leaves are
/// the micro-batches. A process requests a range of these leaves.
pub(crate) struct TrainingBatches {
    epochs: Arc<Epochs>,
    /// Last update for which [`Source::arrange`] was called: position of its first micro-batch,
    /// number of its micro-batches, and range of the leaves that this process requests.
    update: (Position, usize, Range<usize>),
    ahead: Option<Prefetcher>,
}

impl TrainingBatches {
    /// Batches of `dataset` in a random order that depends on `seed`.
    pub(crate) fn new(dataset: Arc<dyn Dataset>, batching: &BatchingConfig, seed: u64) -> Self {
        Self {
            epochs: Arc::new(Epochs::new(dataset, batching, seed)),
            update: (Position::default(), 1, 0..1),
            ahead: None,
        }
    }
}

impl Source for TrainingBatches {
    fn batches(&mut self, epoch: u64) -> Result<u64, BoxError> {
        Ok(self.epochs.plan(epoch).batches() as u64)
    }

    fn arrange(
        &mut self,
        places: &mut [Position],
        own_leaves: Range<usize>,
    ) -> Result<(), BoxError> {
        if let Some(&begin) = places.first() {
            self.update = (begin, places.len(), own_leaves);
            self.epochs.forget_before(begin.epoch);
        }
        let mut at = places.iter().map(|&place| in_data(place)).collect::<Result<Vec<_>, _>>()?;
        arrange(&self.epochs, &mut at);
        for (place, at) in places.iter_mut().zip(at) {
            *place = Position { epoch: at.epoch, index: at.batch as u64 };
        }
        Ok(())
    }

    fn batch(&mut self, position: Position) -> Result<Batch, BoxError> {
        let wanted = in_data(position)?;
        let ahead = match &mut self.ahead {
            Some(ahead) => ahead,
            None => {
                let (begin, count, own_leaves) = self.update.clone();
                let all = self.epochs.positions(in_data(begin)?);
                let places = OwnPlaces {
                    epochs: Arc::clone(&self.epochs),
                    all,
                    count,
                    own_leaves,
                    next: Vec::new(),
                };
                self.ahead.insert(Prefetcher::new(&self.epochs, places))
            }
        };
        match ahead.next().transpose()? {
            Some(item) if item.position == wanted => Ok(packed(item.batch)),
            // This happens in the last update, which can have fewer micro-batches than other
            // updates.
            _ => {
                self.ahead = None;
                Ok(packed(self.epochs.batch(wanted)?))
            }
        }
    }
}

/// Converts a position from the trainer's type to the type in the data crate.
fn in_data(place: Position) -> Result<taper_data::Position, BoxError> {
    Ok(taper_data::Position { epoch: place.epoch, batch: usize::try_from(place.index)? })
}

/// Reorders the micro-batches of an update, which become the leaves of the tree in which gradients
/// are added up. In the new order, the two halves of each subtree have about equal cost.
fn arrange(epochs: &Epochs, places: &mut [taper_data::Position]) {
    // The order of one or two leaves does not change the cost of branches.
    if places.len() > 2 {
        let cost = |place: &taper_data::Position| epochs.plan(place.epoch).cost(place.batch);
        let order = balanced(&places.iter().map(cost).collect::<Vec<_>>());
        places.clone_from_slice(&order.into_iter().map(|place| places[place]).collect::<Vec<_>>());
    }
}

/// Positions of the micro-batches that one process requests, update after update. Each update is
/// assumed to have `count` micro-batches.
#[derive(Clone)]
struct OwnPlaces {
    epochs: Arc<Epochs>,
    all: Positions,
    count: usize,
    own_leaves: Range<usize>,
    /// Positions of the current update that have not been returned yet, in reverse order.
    next: Vec<taper_data::Position>,
}

impl Iterator for OwnPlaces {
    type Item = taper_data::Position;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next.is_empty() {
            let mut places: Vec<_> = self.all.by_ref().take(self.count).collect();
            arrange(&self.epochs, &mut places);
            self.next = places.get(self.own_leaves.clone())?.to_vec();
            self.next.reverse();
        }
        self.next.pop()
    }
}

/// Converts a batch of the data to a batch for models.
pub(crate) fn packed(batch: taper_data::Batch) -> Batch {
    let stream =
        |stream: taper_data::Stream| Sequences { ids: stream.ids, lengths: stream.lengths };
    Batch {
        streams: batch.streams.into_iter().map(stream).collect(),
        asked: batch.asked,
        answers: batch.answers,
        links: batch.links,
    }
}

/// Returns every batch of `dataset` once, without shuffling, for validation.
pub(crate) fn in_order(
    dataset: &Arc<dyn Dataset>,
    batching: &BatchingConfig,
) -> impl Iterator<Item = Result<Batch, BoxError>> + use<> {
    let batching = BatchingConfig { shuffle: false, ..batching.clone() };
    let plan = Arc::clone(dataset).plan(&batching, Epoch::new(0, 0));
    (0..plan.batches()).map(move |index| Ok(packed(plan.batch(index)?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use taper_data::{BatchingReport, EpochPlan, Report};

    /// Number of batches in an epoch, more than the threads of four processes prepare in advance.
    const BATCHES: usize = 40;

    /// Dataset whose batches contain their epoch and index, with a list of the epochs that have
    /// been planned.
    #[derive(Debug, Default)]
    struct Numbers {
        report: BatchingReport,
        planned: Mutex<Vec<u64>>,
    }

    struct Plan(u64);

    impl Dataset for Numbers {
        fn plan(self: Arc<Self>, _: &BatchingConfig, epoch: Epoch) -> Box<dyn EpochPlan> {
            self.planned.lock().unwrap().push(epoch.number);
            Box::new(Plan(epoch.number))
        }

        fn batching(&self) -> &BatchingReport {
            &self.report
        }

        fn report(&self) -> Report<'_> {
            unreachable!("nobody asks")
        }

        fn longest_row(&self) -> usize {
            1
        }

        fn largest_batch(&self, _: usize) -> taper_data::Batch {
            taper_data::Batch::default()
        }
    }

    impl EpochPlan for Plan {
        fn batches(&self) -> usize {
            BATCHES
        }

        fn cost(&self, batch: usize) -> u64 {
            100 + (self.0 * 31 + batch as u64 * 17) % 10
        }

        fn batch(&self, batch: usize) -> taper_data::Result<taper_data::Batch> {
            Ok(taper_data::Batch {
                answers: vec![self.0 as u32, batch as u32],
                ..taper_data::Batch::default()
            })
        }
    }

    /// Positions of the `count` micro-batches of the next update, in the order of the data.
    fn update(source: &mut TrainingBatches, next: &mut Position, count: usize) -> Vec<Position> {
        let mut places = Vec::new();
        while places.len() < count {
            places.push(*next);
            next.index += 1;
            if next.index == source.batches(next.epoch).unwrap() {
                *next = Position { epoch: next.epoch + 1, index: 0 };
            }
        }
        places
    }

    /// Checks that several processes together have the same micro-batches as one process, and that
    /// no process plans an epoch twice. Training resumes within an epoch here, and the last update
    /// is smaller than the others.
    #[test]
    fn processes_share_updates_and_plan_each_epoch_once() {
        let updates = [[4; 25].as_slice(), &[2]].concat();
        let batching = BatchingConfig::default();
        let begin = Position { epoch: 0, index: 30 };
        let mut of_one = Vec::new();
        for size in [1, 2, 4] {
            let mut of_all = vec![Vec::new(); updates.len()];
            for rank in 0..size {
                let data = Arc::new(Numbers::default());
                let mut source = TrainingBatches::new(data.clone(), &batching, 1);
                let mut next = begin;
                for (number, count) in updates.iter().copied().enumerate() {
                    let mut places = update(&mut source, &mut next, count);
                    let mut sorted = places.clone();
                    let own_leaves = rank * count / size..(rank + 1) * count / size;
                    source.arrange(&mut places, own_leaves.clone()).unwrap();
                    for &place in &places[own_leaves] {
                        let answers = source.batch(place).unwrap().answers;
                        assert_eq!(answers, [place.epoch as u32, place.index as u32]);
                        of_all[number].push(place);
                    }
                    places.sort_unstable();
                    sorted.sort_unstable();
                    assert_eq!(places, sorted, "the same micro-batches");
                }
                // The thread may already have prepared batches after the last requested one.
                drop(source);
                let planned = data.planned.lock().unwrap();
                let mut once = planned.clone();
                once.dedup();
                assert_eq!(*planned, once, "process {rank} of {size}");
                assert!(planned.len() <= 2 + next.epoch as usize, "{planned:?}");
            }
            if size == 1 {
                of_one.clone_from(&of_all);
                assert!(of_one.iter().any(|update| !update.is_sorted()), "{of_one:?}");
            }
            assert_eq!(of_all, of_one, "{size} processes");
        }
    }
}
