//! What a run tells about itself while it goes on.

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::Result;
use candle_core::Device;
use taper_data::{Task, TokenisingProgress};
use taper_trainer::{StopReason, WarmStart};

use crate::checks::computation::DtypeChoice;
use crate::checks::cost::{Cost, bytes};
use crate::evaluation::TestSetResult;
use crate::training::{DataSummary, Further, TrainingLimits};
use crate::word_vectors::TakenVectors;

/// What happens in a run, in the order of the variants.
#[derive(Debug)]
#[non_exhaustive]
pub enum RunEvent<'a> {
    /// Something that a person should know; may come at any time.
    Notice(Notice),
    /// This process has the lock of the run.
    Locked {
        /// The run's folder.
        folder: &'a Path,
    },
    /// A corpus is in several files.
    Files {
        /// What it is called.
        corpus: &'a str,
        /// The files of its source, or its tables, in their order.
        files: &'a [PathBuf],
    },
    /// Text is tokenised; comes often.
    Tokenising(&'a TokenisingProgress),
    /// A new run begins with the weights of another, in place of drawn ones.
    WarmStart {
        /// What was taken and what was not.
        started: &'a WarmStart,
        /// The keys of its recipe that give way to that run's tokenizer, with both values.
        replaced: &'a [String],
        /// Whether its tokenizer is another than that run's.
        own_tokenizer: bool,
    },
    /// Embeddings of a new run begin with vectors of words, or one-hot, in place of drawn ones.
    WordVectors(&'a [TakenVectors]),
    /// The data is prepared, and the model and its largest batch fit.
    Prepared {
        /// What the data is.
        data: DataSummary<'a>,
        /// What the model costs.
        cost: Cost,
    },
    /// The first update is next.
    Begins {
        /// The run's folder.
        folder: &'a Path,
        /// What the model is for.
        task: Task,
        /// Updates that were made before.
        step: u64,
        /// Where training ends at the latest.
        limits: TrainingLimits,
        /// What computes.
        device: &'a Device,
        /// In which type.
        dtype: &'a str,
    },
    /// An update was made.
    Updated {
        /// Updates made.
        step: u64,
        /// Seconds of training, summed over resumes.
        seconds: f64,
    },
    /// An event of the trainer; `metrics.jsonl` has it already.
    Training(&'a taper_trainer::Event),
    /// The stop flag ended training; everything that was done is saved.
    Interrupted {
        /// The run's folder.
        folder: &'a Path,
        /// Updates made.
        step: u64,
    },
    /// Training came to its end and is saved; the test is next.
    Trained {
        /// Why it ended.
        reason: StopReason,
        /// Updates made.
        step: u64,
        /// Seconds that this process trained.
        seconds: f64,
        /// How it goes on.
        further: Further,
    },
    /// A trained model is about to be measured.
    Measuring {
        /// The checkpoint whose weights are used.
        checkpoint: &'a Path,
        /// Its step.
        step: u64,
    },
    /// A trained model was measured on a split.
    Measured(&'a TestSetResult),
    /// A test set is being decoded.
    Decoding {
        /// The name of its split.
        split: &'a str,
        /// Sentences that are done.
        done: usize,
        /// All of them.
        total: usize,
    },
    /// That test set is decoded, or decoding it failed.
    Decoded,
    /// The test sets are scored, if any were to be.
    Tested {
        /// The run's folder.
        folder: &'a Path,
        /// What the model is for.
        task: Task,
        /// The checkpoint whose weights were used.
        checkpoint: &'a Path,
        /// The step of that checkpoint.
        step: u64,
        /// The scores.
        results: &'a [TestSetResult],
        /// How many sample translations the recipe asks for.
        samples: usize,
        /// Whether there is something to measure the model on, done now or not.
        has_test_sets: bool,
    },
}

/// Something that a person should know and that ends nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// A key of the recipe is set in vain; the text says why.
    WithoutEffect(String),
    /// The recipe leaves the type of the computation open; this is what the run has from here on.
    DtypeChosen(DtypeChoice),
    /// Nothing is saved before the end of training.
    SavedOnlyAtTheEnd,
    /// The file system of this folder has no locks.
    NoLocks(PathBuf),
    /// The process of this number, which trained the run before, was killed.
    ProcessKilled(String),
    /// What a run that came to nothing has left in its folder cannot be removed.
    NotRemoved {
        /// The folder.
        folder: PathBuf,
        /// Why not.
        cause: String,
    },
    /// Files of the run were removed while it was trained, and are there again.
    WrittenAgain {
        /// The folder.
        folder: PathBuf,
        /// Their names in there.
        names: Vec<String>,
    },
    /// Training ends before the wanted direction is trained alone.
    DirectionsOnly {
        /// `data.bidirectional_epochs`.
        epochs: u64,
        /// The updates that those take.
        updates: u64,
    },
    /// Some processes have nothing to do.
    IdleProcesses {
        /// How many there are.
        processes: usize,
        /// `training.accumulation`, which they share.
        micro_batches: usize,
    },
    /// The translations of this split look tokenized.
    LooksTokenized(String),
    /// Translations end only because they had reached the maximum length.
    Truncated {
        /// The split that was translated.
        split: String,
        /// How many.
        truncated: usize,
        /// Of how many.
        of: usize,
    },
    /// Scores of validations mean something else from here on, so that the best so far and the
    /// patience are forgotten.
    ScoresForgotten {
        /// What has changed.
        changes: String,
        /// The best score so far.
        best: String,
        /// The update after which it was measured.
        step: u64,
    },
    /// The largest batches that fit are absurdly small.
    SmallBatches {
        /// Their tokens.
        tokens: usize,
        /// The bytes that the process may take.
        limit: u64,
    },
    /// The record of the run holds lines that are no records.
    RecordSetAside {
        /// The file.
        path: PathBuf,
        /// The first such line, counted from 1.
        line: u64,
        /// Where it is kept as it was.
        aside: PathBuf,
    },
    /// A text has a tab, though its model reads one text a line.
    TabInText {
        /// The file.
        path: PathBuf,
        /// The first such line, counted from 1.
        line: u64,
    },
    /// Tensors of a folder that is imported are no weights, or the model has no use for them.
    TensorsLeftOut(Vec<String>),
    /// A folder that is imported has another output projection than its configuration says.
    Untied {
        /// The tensor of the projection.
        tensor: String,
        /// The tensor of the embedding.
        embedding: String,
    },
    /// A folder that is imported has a model without a head.
    HeadDrawn {
        /// The model.
        architecture: String,
        /// The parameters of the head that was drawn.
        parameters: Vec<String>,
    },
}

impl fmt::Display for Notice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WithoutEffect(what) => write!(formatter, "note: {what}"),
            Self::DtypeChosen(DtypeChoice { name, reason }) => {
                write!(formatter, "dtype \"auto\" is {name} for this run, since {reason}")
            }
            Self::SavedOnlyAtTheEnd => formatter.write_str(
                "warning: nothing is saved before the end: set training.checkpoint_every, or a \
                 smaller training.validate_every",
            ),
            Self::NoLocks(folder) => write!(
                formatter,
                "warning: the file system of {} has no locks: do not train in it from two \
                 processes",
                folder.display()
            ),
            Self::ProcessKilled(process) => write!(
                formatter,
                "process {process}, which trained this run before, ended without saying so; \
                 going on from the last checkpoint"
            ),
            Self::NotRemoved { folder, cause } => {
                write!(formatter, "warning: cannot remove {}: {cause}", folder.display())
            }
            Self::WrittenAgain { folder, names } => write!(
                formatter,
                "warning: gone from {} while the run was trained, and written again: {}",
                folder.display(),
                names.join(", ")
            ),
            Self::DirectionsOnly { epochs, updates } => write!(
                formatter,
                "warning: training ends before the wanted direction is trained alone: \
                 data.bidirectional_epochs = {epochs} take {updates} updates; set it lower, or \
                 training.max_updates or max_epochs higher"
            ),
            Self::IdleProcesses { processes, micro_batches } => write!(
                formatter,
                "note: {processes} processes share the micro-batches of an update, of which there \
                 are {micro_batches}: set training.accumulation to {processes} or a multiple of \
                 it; data.batching.max_tokens is of one micro-batch"
            ),
            Self::LooksTokenized(split) => write!(
                formatter,
                "warning: translations of {split} look tokenized, so that BLEU is not \
                 comparable: train on text as it is written, or say evaluation.tokenize = \
                 \"none\""
            ),
            Self::Truncated { split, truncated, of } => write!(
                formatter,
                "warning: {}",
                truncated_translations(*truncated, *of, &format!(" of {split}"))
            ),
            Self::ScoresForgotten { changes, best, step } => write!(
                formatter,
                "note: scores of validations cannot be compared with earlier ones ({changes}): \
                 the best, {best} after update {step}, and the patience are forgotten"
            ),
            Self::SmallBatches { tokens, limit } => write!(
                formatter,
                "warning: batches of {tokens} tokens are the largest that fit into {} of memory: \
                 training will be slow, and its gradients noisy; give it more memory, or train a \
                 smaller model",
                bytes(*limit)
            ),
            Self::RecordSetAside { path, line, aside } => write!(
                formatter,
                "warning: {}, line {line}: not a record of a training; the file is kept as {}, \
                 and goes on with its records",
                path.display(),
                aside.display()
            ),
            Self::TabInText { path, line } => write!(
                formatter,
                "warning: {}, line {line}: has a tab, but the run labels one text a line, and reads \
                 the tab as part of it; a run of pairs has data.labelled.pairs = true",
                path.display()
            ),
            Self::TensorsLeftOut(names) => write!(
                formatter,
                "note: left out, since they are no weights or the model has no use for them: {}",
                some_of(names)
            ),
            Self::Untied { tensor, embedding } => write!(
                formatter,
                "note: {tensor} differs from {embedding}, though config.json says that they are \
                 tied: each is read (model.tied = \"none\")"
            ),
            Self::HeadDrawn { architecture, parameters } => write!(
                formatter,
                "warning: a {architecture} has no head: {} are drawn, and what they tell means \
                 nothing before training; begin a model for your data with `taper train CONFIG \
                 --from RUN`",
                some_of(parameters)
            ),
        }
    }
}

/// The first few names, and how many more there are.
fn some_of(names: &[String]) -> String {
    const SHOWN: usize = 3;
    let shown = names.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
    match names.len().checked_sub(SHOWN) {
        Some(more) if more > 0 => format!("{shown} and {more} more"),
        _ => shown,
    }
}

/// Says that translations never ended, and what to do about it; `which` are meant.
pub fn truncated_translations(truncated: usize, of: usize, which: &str) -> String {
    format!(
        "{truncated} of {of} translations{which} reached the maximum length without </s>: a \
         lower decoding.length_reward, a higher decoding.repetition_penalty or longer training \
         may help; decoding.max_length_ratio, max_length_offset and max_length set the maximum"
    )
}

/// Whoever wants to know what happens in a run. A closure is one.
pub trait RunObserver {
    /// Takes note of `event`.
    ///
    /// # Errors
    /// One ends the run.
    fn observe(&mut self, event: &RunEvent<'_>) -> Result<()>;
}

impl<F: FnMut(&RunEvent<'_>) -> Result<()>> RunObserver for F {
    fn observe(&mut self, event: &RunEvent<'_>) -> Result<()> {
        self(event)
    }
}
