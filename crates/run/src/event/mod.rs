//! Events of a run (the folder of a training and its model): of its training, and of measurements
//! of its model.

mod notice;

use std::path::{Path, PathBuf};

use anyhow::Result;
use candle_core::Device;
use taper_data::{Task, TokenisingProgress};
use taper_trainer::{StopReason, WarmStart};

use crate::checks::cost::Cost;
use crate::evaluation::{HostileTestSet, TestSetResult};
use crate::training::{Continuation, DataSummary, TrainingLimits};
use crate::word_vectors::TakenVectors;

pub use notice::{
    FolderNotice, ImportNotice, Notice, RecipeNotice, TextNotice, truncated_translations,
};

/// Event of a run. Except for messages, the variants are in the order in which events occur.
#[derive(Debug)]
#[non_exhaustive]
pub enum RunEvent<'a> {
    /// Message for people, which can come at any time.
    Notice(Notice),
    /// This process has locked the run, so that no other process trains it.
    Locked {
        /// Folder of the run.
        folder: &'a Path,
    },
    /// A corpus consists of several files.
    Files {
        /// Name of the corpus.
        corpus: &'a str,
        /// Files of the corpus, in order: the files with source texts or, if the corpus consists of
        /// tables, the tables.
        files: &'a [PathBuf],
    },
    /// Text is being tokenised. This event is frequent.
    Tokenising(&'a TokenisingProgress),
    /// A new run begins with the weights of another run, instead of random weights.
    WarmStart {
        /// Which parameters were copied, and which were not.
        started: &'a WarmStart,
        /// Keys of the new run's recipe (settings) whose values were replaced because of the other
        /// run's tokenizer, with the old and the new value.
        replaced: &'a [String],
        /// True if the new run's tokenizer differs from the tokenizer of the other run.
        own_tokenizer: bool,
    },
    /// Embeddings of a new run begin with word vectors or one-hot vectors, instead of random
    /// vectors.
    WordVectors(&'a [TakenVectors]),
    /// The data is prepared, and training the model with its largest batch fits into memory.
    Prepared {
        /// Summary of the data.
        data: DataSummary<'a>,
        /// Parameters, arithmetic and memory of the model.
        cost: Cost,
    },
    /// Training begins: the next update is the first one in this process.
    Begins {
        /// Folder of the run.
        folder: &'a Path,
        /// Task of the model.
        task: Task,
        /// Number of updates that were made before, by earlier processes.
        step: u64,
        /// Limits at which training ends.
        limits: TrainingLimits,
        /// Device of the computation.
        device: &'a Device,
        /// Number type of the computation.
        dtype: &'a str,
    },
    /// An update was made.
    Updated {
        /// Number of updates so far.
        step: u64,
        /// Seconds of training so far, including those before the run was resumed.
        seconds: f64,
    },
    /// Event of the trainer, which has already been written to `metrics.jsonl`.
    Training(&'a taper_trainer::Event),
    /// Training ended early, because the stop flag was set; all work is saved.
    Interrupted {
        /// Folder of the run.
        folder: &'a Path,
        /// Number of updates so far.
        step: u64,
    },
    /// Training has ended and its results are saved. Measurement on the test sets comes next.
    Trained {
        /// Reason why training ended.
        reason: StopReason,
        /// Number of updates that the run has made.
        step: u64,
        /// Seconds of training in this process.
        seconds: f64,
        /// Change of the recipe that would let training continue.
        continuation: Continuation,
    },
    /// A trained model is about to be measured.
    Measuring {
        /// Checkpoint whose weights are used.
        checkpoint: &'a Path,
        /// Number of updates after which the checkpoint was saved.
        step: u64,
    },
    /// A trained model was measured on a split.
    Measured(&'a TestSetResult),
    /// A trained model was measured on hostile variants of a split (with lines changed to be harder
    /// to translate).
    MeasuredHostile(&'a HostileTestSet),
    /// A test set is being decoded.
    Decoding {
        /// Name of the split.
        split: &'a str,
        /// Number of sentences or images done so far.
        done: usize,
        /// Number of all sentences or images.
        total: usize,
    },
    /// The decoding of the test set has ended, or has failed.
    Decoded,
    /// Training has ended. If the recipe requests it, the test sets have been scored.
    Tested {
        /// Folder of the run.
        folder: &'a Path,
        /// Task of the model.
        task: Task,
        /// Checkpoint whose weights were used.
        checkpoint: &'a Path,
        /// Number of updates after which the checkpoint was saved.
        step: u64,
        /// Results on the test sets.
        results: &'a [TestSetResult],
        /// Number of sample translations that the recipe requests.
        samples: usize,
        /// True if the run has test sets, even if they were not measured.
        has_test_sets: bool,
    },
}

impl RunEvent<'_> {
    /// Event that passes on the message `notice`.
    pub(crate) fn notice(notice: impl Into<Notice>) -> Self {
        Self::Notice(notice.into())
    }
}

/// Observer of the events of a run. Any closure with the same argument and result as
/// [`RunObserver::observe`] is an observer.
pub trait RunObserver {
    /// Receives `event`.
    ///
    /// # Errors
    /// When the observer wants the run to end.
    fn observe(&mut self, event: &RunEvent<'_>) -> Result<()>;
}

impl<F: FnMut(&RunEvent<'_>) -> Result<()>> RunObserver for F {
    fn observe(&mut self, event: &RunEvent<'_>) -> Result<()> {
        self(event)
    }
}
