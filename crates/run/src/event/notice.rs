//! Messages for people about trainings, recipes (TOML files with the settings of a training),
//! folders and texts.

use std::fmt;
use std::path::PathBuf;

use crate::advice::{Action, Advice, Verb};
use crate::checks::dtype_choice::DtypeChoice;
use crate::numbers::bytes;

/// Message for people about something that does not end the run.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// Message about a recipe, or about training with it.
    Recipe(RecipeNotice),
    /// Message about the folder of a run.
    Folder(FolderNotice),
    /// Message about texts that a model reads or writes.
    Text(TextNotice),
    /// Message about a folder that is imported.
    Import(ImportNotice),
}

impl Notice {
    /// Advice on what to do about the message; `None` if there is none.
    #[must_use]
    pub fn advice(&self) -> Option<Advice> {
        match self {
            Self::Import(ImportNotice::HeadDrawn { .. }) => {
                Some(Advice::new(Action::Use(Verb::BeginWith), "begins a model for your data"))
            }
            _ => None,
        }
    }
}

/// Writes the message itself, without the advice of [`Notice::advice`].
impl fmt::Display for Notice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Recipe(notice) => fmt::Display::fmt(notice, formatter),
            Self::Folder(notice) => fmt::Display::fmt(notice, formatter),
            Self::Text(notice) => fmt::Display::fmt(notice, formatter),
            Self::Import(notice) => fmt::Display::fmt(notice, formatter),
        }
    }
}

/// Message about a recipe, or about training with it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecipeNotice {
    /// A key of the recipe is set but has no effect; the text has the key and the reason.
    WithoutEffect(String),
    /// The recipe leaves the number type of the computation open. The run has chosen this type and
    /// keeps it.
    DtypeChosen(DtypeChoice),
    /// The device is `auto`, and the machine has a GPU, but it does not open, so the CPU computes.
    /// The text has the reason.
    UnusableGpu(String),
    /// By the settings of the recipe, nothing is saved before the end of training.
    SavedOnlyAtTheEnd,
    /// Training ends before the epochs that train only the wanted direction of translation. They
    /// would come after `epochs` epochs that train both directions.
    DirectionsOnly {
        /// Value of `data.bidirectional_epochs`.
        epochs: u64,
        /// Number of updates in the epochs that train both directions.
        updates: u64,
    },
    /// Some processes have nothing to do for part of an update.
    IdleProcesses {
        /// Number of processes that train together.
        processes: usize,
        /// Value of `training.accumulation`: the number of micro-batches in an update, which the
        /// processes divide among themselves.
        micro_batches: usize,
    },
    /// The largest batches that fit into memory are very small.
    SmallBatches {
        /// Size of these batches in tokens.
        tokens: usize,
        /// Limit on the memory of the process, in bytes.
        limit: u64,
    },
    /// Validation scores can no longer be compared with earlier ones, so the best score and the
    /// patience are reset.
    ScoresForgotten {
        /// Words for the changes of the validation that make the scores incomparable.
        changes: String,
        /// Best score of the earlier validations.
        best: String,
        /// Number of updates after which the best score was measured.
        step: u64,
    },
}

impl From<RecipeNotice> for Notice {
    fn from(notice: RecipeNotice) -> Self {
        Self::Recipe(notice)
    }
}

impl fmt::Display for RecipeNotice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WithoutEffect(what) => write!(formatter, "note: {what}"),
            Self::DtypeChosen(DtypeChoice { name, reason }) => {
                write!(formatter, "dtype \"auto\" is {name} for this run, since {reason}")
            }
            Self::UnusableGpu(reason) => write!(
                formatter,
                "warning: this machine's GPU does not open, so device \"auto\" is the CPU \
                 ({reason}): mend it, or set device = \"cpu\""
            ),
            Self::SavedOnlyAtTheEnd => formatter.write_str(
                "warning: nothing is saved before the end: set training.checkpoint_every, or a \
                 smaller training.validate_every",
            ),
            Self::DirectionsOnly { epochs, updates } => write!(
                formatter,
                "warning: training ends before the wanted direction is trained alone: \
                 data.bidirectional_epochs = {epochs} take {updates} updates; set it lower, or \
                 training.max_updates or max_epochs higher"
            ),
            Self::IdleProcesses { processes, micro_batches } => write!(
                formatter,
                "note: {processes} processes share the {micro_batches} micro-batches of an \
                 update: set training.accumulation to {processes} or a multiple of it; \
                 data.batching.max_tokens is for one micro-batch"
            ),
            Self::SmallBatches { tokens, limit } => write!(
                formatter,
                "warning: batches of {tokens} tokens are the largest that fit into {} of memory: \
                 training will be slow, and its gradients noisy; give it more memory, or train a \
                 smaller model",
                bytes(*limit)
            ),
            Self::ScoresForgotten { changes, best, step } => write!(
                formatter,
                "note: scores of validations cannot be compared with earlier ones ({changes}): \
                 the best score, {best} after update {step}, and the patience are reset"
            ),
        }
    }
}

/// Message about the folder of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum FolderNotice {
    /// The file system of this folder has no locks, so nothing prevents two processes from training
    /// the same run.
    NoLocks(PathBuf),
    /// The process with this id, which trained the run before, was killed.
    ProcessKilled(String),
    /// A run could not be begun, and its files cannot be removed from its folder.
    NotRemoved {
        /// Folder of the run.
        folder: PathBuf,
        /// Reason why the files cannot be removed.
        cause: String,
    },
    /// Files of the run were removed during training, and have been written again.
    WrittenAgain {
        /// Folder of the run.
        folder: PathBuf,
        /// Names of the files that were written again.
        names: Vec<String>,
    },
    /// The record of the run (its log of metrics) contains invalid lines. It was set aside, and a
    /// new file continues with its valid lines.
    RecordSetAside {
        /// Path of the record.
        path: PathBuf,
        /// Number of the first invalid line, counted from 1.
        line: u64,
        /// Path to which the original file was copied.
        aside: PathBuf,
    },
}

impl From<FolderNotice> for Notice {
    fn from(notice: FolderNotice) -> Self {
        Self::Folder(notice)
    }
}

impl fmt::Display for FolderNotice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoLocks(folder) => write!(
                formatter,
                "warning: the file system of {} has no locks: do not train in it from two \
                 processes",
                folder.display()
            ),
            Self::ProcessKilled(process) => write!(
                formatter,
                "process {process}, which trained this run before, ended without saying so; \
                 training continues from the last checkpoint"
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
            Self::RecordSetAside { path, line, aside } => write!(
                formatter,
                "warning: {}, line {line}: not a record of a training; the file is kept as {}, \
                 and its valid records continue in a new file",
                path.display(),
                aside.display()
            ),
        }
    }
}

/// Message about texts that a model reads or writes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TextNotice {
    /// The translations of this split look as if punctuation were separated from words by spaces,
    /// which distorts BLEU.
    LooksTokenized(String),
    /// Translations ended only because they reached the maximum length.
    Truncated {
        /// Name of the translated split.
        split: String,
        /// Number of truncated translations.
        truncated: usize,
        /// Number of all translations.
        of: usize,
    },
    /// A line has a tab, as in files where each line has a pair of texts, but the model reads each
    /// line as one text.
    TabInText {
        /// File of the text.
        path: PathBuf,
        /// Number of the first line with a tab, counted from 1.
        line: u64,
    },
}

impl From<TextNotice> for Notice {
    fn from(notice: TextNotice) -> Self {
        Self::Text(notice)
    }
}

impl fmt::Display for TextNotice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LooksTokenized(split) => write!(
                formatter,
                "warning: translations of {split} look tokenized, so BLEU is not comparable: \
                 train on text without separate tokens, or set evaluation.tokenize = \"none\""
            ),
            Self::Truncated { split, truncated, of } => write!(
                formatter,
                "warning: {}",
                truncated_translations(*truncated, *of, &format!(" of {split}"))
            ),
            Self::TabInText { path, line } => write!(
                formatter,
                "warning: {}, line {line}: has a tab, but the run labels one text a line, and reads \
                 the tab as part of it; a run of pairs has data.labelled.pairs = true",
                path.display()
            ),
        }
    }
}

/// Message about a folder that is imported.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ImportNotice {
    /// Tensors of an imported folder are ignored: they are not weights, or the model does not use
    /// them.
    TensorsLeftOut(Vec<String>),
    /// The output projection of an imported folder differs from the embedding, although its
    /// configuration says that they are tied.
    Untied {
        /// Name of the tensor with the output projection.
        tensor: String,
        /// Name of the tensor with the embedding.
        embedding: String,
    },
    /// An imported folder has a model without the output layer (head) for its task. This head was
    /// randomly initialised.
    HeadDrawn {
        /// Name of the model's architecture.
        architecture: String,
        /// Names of the parameters of the head.
        parameters: Vec<String>,
    },
}

impl From<ImportNotice> for Notice {
    fn from(notice: ImportNotice) -> Self {
        Self::Import(notice)
    }
}

impl fmt::Display for ImportNotice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TensorsLeftOut(names) => write!(
                formatter,
                "note: ignored, because they are not weights or the model does not use them: {}",
                some_of(names)
            ),
            Self::Untied { tensor, embedding } => write!(
                formatter,
                "note: {tensor} differs from {embedding}, though config.json says that they are \
                 tied: each is read (model.tied)"
            ),
            Self::HeadDrawn { architecture, parameters } => write!(
                formatter,
                "warning: a {architecture} has no head: {} are initialised randomly, and their \
                 predictions mean nothing before training",
                some_of(parameters)
            ),
        }
    }
}

/// Lists the first three names, and how many more there are.
fn some_of(names: &[String]) -> String {
    const SHOWN: usize = 3;
    let shown = names.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
    match names.len().checked_sub(SHOWN) {
        Some(more) if more > 0 => format!("{shown} and {more} more"),
        _ => shown,
    }
}

/// Message that `truncated` of `of` translations reached the maximum length, with advice. In the
/// message, `which` follows the word `translations` and says which translations are meant.
pub fn truncated_translations(truncated: usize, of: usize, which: &str) -> String {
    format!(
        "{truncated} of {of} translations{which} reached the maximum length without </s>: a \
         lower decoding.length_reward, a higher decoding.repetition_penalty or longer training \
         may help; decoding.max_length_ratio, max_length_offset and max_length set the maximum"
    )
}
