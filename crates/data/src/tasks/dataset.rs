//! Interface between tasks and the trainer: data sets, the batches of their epochs, and reports.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use crate::{
    Batch, BatchingConfig, BatchingReport, CaptionReport, DataReport, Direction, Epoch,
    ImageReport, RegressionReport, Result, TextReport, TokenizerPair,
};

/// Data for training.
#[derive(Debug)]
pub struct Prepared<D: ?Sized = dyn Dataset> {
    /// The tokenizers of the run.
    pub tokenizers: TokenizerPair,
    /// The training split.
    pub train: Arc<D>,
    /// The validation split, if one is configured.
    pub validation: Option<Arc<D>>,
}

impl Prepared {
    /// Erases the type of the data sets.
    pub(super) fn of_any<D: Dataset + 'static>(prepared: Prepared<D>) -> Self {
        Self {
            tokenizers: prepared.tokenizers,
            train: prepared.train,
            validation: prepared.validation.map(|split| split as _),
        }
    }
}

/// Report on the content of a split and its processing, for inspection before training.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(untagged)]
pub enum Report<'a> {
    /// Sentence pairs.
    Pairs(&'a DataReport),
    /// Running text.
    Text(&'a TextReport),
    /// Images.
    Images(&'a ImageReport),
    /// Images with captions.
    Captions(&'a CaptionReport),
    /// Functions.
    Functions(&'a RegressionReport),
}

impl<'a> Report<'a> {
    /// Sizes of the batches of the split.
    #[must_use]
    pub fn batching(self) -> &'a BatchingReport {
        match self {
            Self::Pairs(report) => &report.batching,
            Self::Text(report) => &report.batching,
            Self::Images(report) => &report.batching,
            Self::Captions(report) => &report.images.batching,
            Self::Functions(report) => &report.batching,
        }
    }
}

/// Split that is prepared for training, from which batches are made.
pub trait Dataset: fmt::Debug + Send + Sync {
    /// Plans an epoch. If there are data, each epoch has at least one batch.
    fn plan(self: Arc<Self>, batching: &BatchingConfig, epoch: Epoch) -> Box<dyn EpochPlan>;

    /// Report on the batches of the split.
    fn batching(&self) -> &BatchingReport {
        self.report().batching()
    }

    /// Report on the content of the split and its processing.
    fn report(&self) -> Report<'_>;

    /// Largest factor by which the number of tokens of a batch can exceed the planned number. It is
    /// above 1 if texts are changed in each epoch, because a changed text can be longer.
    ///
    /// # Errors
    ///
    /// If the data can no longer be read.
    fn growth(self: Arc<Self>, _batching: &BatchingConfig, _seed: u64) -> Result<f64> {
        Ok(1.0)
    }

    /// Largest number of ids of a row (token sequence), including special tokens such as `</s>`,
    /// for any segmentation of the text.
    fn longest_row(&self) -> usize;

    /// Parts of the data on which a model is measured separately, one for each direction of
    /// translation. Empty if there is only one direction or none.
    fn directions(&self) -> Vec<(Direction, Arc<dyn Dataset>)> {
        Vec::new()
    }

    /// Number of tokens in the source and in the target of each example, without the `</s>` at the
    /// end. Tokens that are put before every source, such as a prefix, are included. `None` for
    /// data that is not translated.
    fn pair_lengths(&self) -> Option<Box<dyn Iterator<Item = (usize, usize)> + '_>> {
        None
    }

    /// Token budget (largest number of tokens of a batch) at which a single batch contains all
    /// data. A larger budget does not make batches larger.
    fn most_tokens(&self) -> usize {
        usize::MAX
    }

    /// Batch of the largest size that a budget of `tokens` tokens allows. Its content is arbitrary.
    fn largest_batch(&self, tokens: usize) -> Batch;
}

/// Batches of one epoch. They depend only on the data set, the settings, the seed and the epoch, so
/// any batch can be requested without the batches before it.
pub trait EpochPlan: Send + Sync {
    /// Number of batches.
    fn batches(&self) -> usize;

    /// Approximate cost of a batch relative to other batches of the same data: the number of
    /// vectors (one for each token or prediction) that a model computes for it. 0 if all batches
    /// cost the same.
    ///
    /// # Panics
    ///
    /// If there is no such batch.
    fn cost(&self, _batch: usize) -> u64 {
        0
    }

    /// Assembles a batch.
    ///
    /// # Errors
    ///
    /// If the data can no longer be read.
    ///
    /// # Panics
    ///
    /// If there is no such batch.
    fn batch(&self, batch: usize) -> Result<Batch>;
}
