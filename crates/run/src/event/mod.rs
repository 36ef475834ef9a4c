//! Events of a running training.

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

/// Event of a run, in the order of the variants.
#[derive(Debug)]
#[non_exhaustive]
pub enum RunEvent<'a> {
    /// Message for a person; may come at any time.
    Notice(Notice),
    /// This process has locked the run.
    Locked {
        /// Folder of the run.
        folder: &'a Path,
    },
    /// A corpus is in several files.
    Files {
        /// Name of the corpus.
        corpus: &'a str,
        /// Files of its source, or its tables, in order.
        files: &'a [PathBuf],
    },
    /// Text is being tokenised; frequent.
    Tokenising(&'a TokenisingProgress),
    /// A new run begins with the weights of another, instead of random ones.
    WarmStart {
        /// Parameters that were copied, and those that were not.
        started: &'a WarmStart,
        /// Keys of its recipe that are replaced because of the other run's tokenizer, with both
        /// values.
        replaced: &'a [String],
        /// True if its tokenizer differs from the other run's.
        own_tokenizer: bool,
    },
    /// Embeddings of a new run begin with vectors of words, or one-hot, instead of random ones.
    WordVectors(&'a [TakenVectors]),
    /// The data is prepared, and the model and its largest batch fit.
    Prepared {
        /// Summary of the data.
        data: DataSummary<'a>,
        /// Cost of the model.
        cost: Cost,
    },
    /// The first update is next.
    Begins {
        /// Folder of the run.
        folder: &'a Path,
        /// Task of the model.
        task: Task,
        /// Number of earlier updates.
        step: u64,
        /// Limits of training.
        limits: TrainingLimits,
        /// Device of the computation.
        device: &'a Device,
        /// Type of the computation.
        dtype: &'a str,
    },
    /// An update was made.
    Updated {
        /// Number of updates made.
        step: u64,
        /// Seconds of training, summed over resumes.
        seconds: f64,
    },
    /// Event of the trainer; `metrics.jsonl` has it already.
    Training(&'a taper_trainer::Event),
    /// The stop flag ended training; all work is saved.
    Interrupted {
        /// Folder of the run.
        folder: &'a Path,
        /// Number of updates made.
        step: u64,
    },
    /// Training has ended and is saved; the test is next.
    Trained {
        /// Reason of the end.
        reason: StopReason,
        /// Number of updates made.
        step: u64,
        /// Seconds of training in this process.
        seconds: f64,
        /// Change that continues the training.
        continuation: Continuation,
    },
    /// A trained model is about to be measured.
    Measuring {
        /// Checkpoint whose weights are used.
        checkpoint: &'a Path,
        /// Step of the checkpoint.
        step: u64,
    },
    /// A trained model was measured on a split.
    Measured(&'a TestSetResult),
    /// A trained model was measured on hostile variants of a split.
    MeasuredHostile(&'a HostileTestSet),
    /// A test set is being decoded.
    Decoding {
        /// Name of the split.
        split: &'a str,
        /// Number of sentences decoded so far.
        done: usize,
        /// Number of all sentences.
        total: usize,
    },
    /// Decoding of that test set ended or failed.
    Decoded,
    /// The test sets are scored, if scores were requested.
    Tested {
        /// Folder of the run.
        folder: &'a Path,
        /// Task of the model.
        task: Task,
        /// Checkpoint whose weights were used.
        checkpoint: &'a Path,
        /// Step of that checkpoint.
        step: u64,
        /// Results.
        results: &'a [TestSetResult],
        /// Number of sample translations that the recipe requests.
        samples: usize,
        /// True if there are test sets, measured or not.
        has_test_sets: bool,
    },
}

impl RunEvent<'_> {
    /// Makes the event of a message.
    pub(crate) fn notice(notice: impl Into<Notice>) -> Self {
        Self::Notice(notice.into())
    }
}

/// Observer of the events of a run. A closure is one.
pub trait RunObserver {
    /// Receives `event`.
    ///
    /// # Errors
    /// When the run should end.
    fn observe(&mut self, event: &RunEvent<'_>) -> Result<()>;
}

impl<F: FnMut(&RunEvent<'_>) -> Result<()>> RunObserver for F {
    fn observe(&mut self, event: &RunEvent<'_>) -> Result<()> {
        self(event)
    }
}
