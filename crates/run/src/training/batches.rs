//! The corpus as the trainer sees it: micro-batches by position, read ahead.

use std::sync::Arc;

use taper_data::{BatchingConfig, Dataset, Prefetched, Prefetcher};
use taper_model::{Batch, Sequences};
use taper_trainer::{BoxError, Position, Source};

/// Training batches, prefetched on a thread as long as they are asked for in
/// order; a jump (a resumed run) starts the thread anew at that place.
pub(crate) struct TrainingBatches {
    dataset: Arc<dyn Dataset>,
    batching: BatchingConfig,
    seed: u64,
    ahead: Option<Prefetcher>,
    /// The batch that the thread has given and nobody has asked for yet.
    item: Option<Prefetched>,
    next: taper_data::Position,
    /// The last epoch that was asked about and the number of its batches.
    counted: Option<(u64, u64)>,
}

impl TrainingBatches {
    /// Batches of `dataset` in the order that `seed` gives.
    pub(crate) fn new(dataset: Arc<dyn Dataset>, batching: BatchingConfig, seed: u64) -> Self {
        Self {
            dataset,
            batching,
            seed,
            ahead: None,
            item: None,
            next: taper_data::Position::default(),
            counted: None,
        }
    }

    /// The batch at `wanted`, from the thread that reads ahead.
    fn fetch(&mut self, wanted: taper_data::Position) -> Result<Prefetched, BoxError> {
        if self.ahead.is_none() || self.next != wanted {
            // The old thread ends before the new one starts.
            drop((self.ahead.take(), self.item.take()));
        }
        let item = match self.item.take() {
            Some(item) => item,
            None => {
                let begin = || {
                    Prefetcher::new(Arc::clone(&self.dataset), &self.batching, self.seed, wanted)
                };
                self.ahead
                    .get_or_insert_with(begin)
                    .next()
                    .ok_or("the thread that prepares batches ended early")??
            }
        };
        if item.position != wanted {
            return Err(format!("asked for batch {wanted:?}, got {:?}", item.position).into());
        }
        self.next = wanted;
        Ok(item)
    }
}

impl Source for TrainingBatches {
    fn batches(&mut self, epoch: u64) -> Result<u64, BoxError> {
        if let Some((counted, batches)) = self.counted
            && counted == epoch
        {
            return Ok(batches);
        }
        // The thread has planned the epoch already, which takes a sort of the corpus.
        let item = self.fetch(taper_data::Position { epoch, batch: 0 })?;
        let batches = item.epoch_batches as u64;
        self.item = Some(item);
        self.counted = Some((epoch, batches));
        Ok(batches)
    }

    fn batch(&mut self, position: Position) -> Result<Batch, BoxError> {
        let item = self.fetch(taper_data::Position {
            epoch: position.epoch,
            batch: usize::try_from(position.index)?,
        })?;
        self.next = item.next;
        Ok(packed(item.batch))
    }
}

/// A host-side batch as models read it.
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

/// Every batch of `dataset` once, in corpus order: for validation.
pub(crate) fn in_order(
    dataset: &Arc<dyn Dataset>,
    batching: &BatchingConfig,
) -> impl Iterator<Item = Result<Batch, BoxError>> + use<> {
    let batching = BatchingConfig { shuffle: false, ..batching.clone() };
    let plan = Arc::clone(dataset).plan(&batching, 0, 0);
    (0..plan.batches()).map(move |index| Ok(packed(plan.batch(index)?)))
}
