//! What a model is to learn: each task makes batches of its corpus.
//!
//! A task is a folder here: it knows the files of a split, tokenises them into a cache, and gives
//! batches by position as a [`Dataset`]. [`Task`] names them all, and is the one place that lists
//! them.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::corpora::{expand_pairs, expand_texts};
use crate::text::fingerprint;
use crate::{
    Batch, BatchingConfig, BatchingReport, CaptionReport, CaptionUse, Corpora, DataConfig,
    DataReport, ImageReport, LabelOf, RegressionReport, Result, Share, TextReport,
    TokenisingProgress, TokenizerPair,
};

pub(crate) mod captions;
pub(crate) mod images;
pub(crate) mod labelled;
pub(crate) mod masked;
pub(crate) mod pairs;
pub(crate) mod questions;
pub(crate) mod regression;
pub(crate) mod running_text;

/// What a model is trained for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Task {
    /// Sentences of one language into another.
    #[default]
    Translation,
    /// Each token of running text from those before it.
    LanguageModel,
    /// Hidden tokens of running text from those on both sides.
    MaskedLanguageModel,
    /// The label of a text.
    Classification,
    /// The tag of each word of a text.
    Tagging,
    /// The span of a text that answers a question about it.
    QuestionAnswering,
    /// The label of an image.
    ImageClassification,
    /// A sentence that describes an image.
    Captions,
    /// Which of several texts belongs to an image, and which of several images to a text.
    ImageText,
    /// The value of a function that is known by some of its points alone.
    InContextRegression,
}

impl fmt::Display for Task {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Translation => "translation",
            Self::LanguageModel => "language-model",
            Self::MaskedLanguageModel => "masked-language-model",
            Self::Classification => "classification",
            Self::Tagging => "tagging",
            Self::QuestionAnswering => "question-answering",
            Self::ImageClassification => "image-classification",
            Self::Captions => "captions",
            Self::ImageText => "image-text",
            Self::InContextRegression => "in-context-regression",
        })
    }
}

impl Task {
    /// Refuses values and combinations that cannot work, before any file is touched.
    ///
    /// # Errors
    ///
    /// [`Error::Config`](crate::Error::Config) with the offending key.
    pub fn validate(self, config: &DataConfig) -> Result<()> {
        config.validate()?;
        match self {
            Self::Translation => pairs::prepare::validate(config),
            Self::LanguageModel => running_text::prepare::validate(config),
            Self::MaskedLanguageModel => masked::prepare::validate(config),
            Self::Classification | Self::Tagging | Self::QuestionAnswering => {
                labelled::dataset::validate(self.label_of(), config)
            }
            Self::ImageClassification => images::dataset::validate(config, false),
            Self::Captions | Self::ImageText => captions::dataset::validate(config),
            Self::InContextRegression => regression::dataset::validate(config),
        }
    }

    /// Puts files in place of the patterns of their names, as in `train.*.gz`: those that each
    /// matches now, by name. One that matches nothing stays, and is refused where it is read. Images
    /// have no patterns.
    ///
    /// # Errors
    ///
    /// [`Error::Malformed`](crate::Error::Malformed) with the pattern, if it matches what is no
    /// file, or the files of two sides do not belong together.
    pub fn expand(self, config: &mut DataConfig) -> Result<()> {
        let plain = config.clone();
        for split in [&mut config.train, &mut config.validation, &mut config.test] {
            match self {
                Self::Translation => expand_pairs(&plain, split)?,
                Self::LanguageModel | Self::MaskedLanguageModel => {
                    expand_texts(&plain, split, &running_text::reader::ENDINGS)?
                }
                Self::Classification => expand_texts(&plain, split, &labelled::reader::ENDINGS)?,
                Self::Tagging => expand_texts(&plain, split, &labelled::tagged::ENDINGS)?,
                Self::QuestionAnswering => expand_texts(&plain, split, &questions::squad::ENDINGS)?,
                Self::ImageClassification
                | Self::Captions
                | Self::ImageText
                | Self::InContextRegression => {}
            }
        }
        Ok(())
    }

    /// What a model of the task answers, in the plural and short: what its speed is counted in.
    #[must_use]
    pub fn answers(self) -> &'static str {
        match self {
            Self::Translation | Self::LanguageModel | Self::MaskedLanguageModel => "tok",
            Self::Captions => "tok",
            Self::Classification => "texts",
            Self::Tagging => "words",
            // An answer has a first and a last token.
            Self::QuestionAnswering => "ends",
            Self::ImageClassification => "images",
            Self::ImageText => "pairs",
            Self::InContextRegression => "points",
        }
    }

    /// What has a label, of the tasks whose texts have labels.
    fn label_of(self) -> LabelOf {
        match self {
            Self::Tagging => LabelOf::Word,
            Self::QuestionAnswering => LabelOf::Question,
            _ => LabelOf::Text,
        }
    }

    /// Whether a part of the training text is held out for validation.
    pub fn holds_out(self, config: &DataConfig) -> bool {
        match self {
            Self::Translation => config.hold_out > 0,
            Self::LanguageModel | Self::MaskedLanguageModel => config.text.hold_out > 0.0,
            Self::Classification
            | Self::Tagging
            | Self::QuestionAnswering
            | Self::InContextRegression => false,
            Self::ImageClassification | Self::Captions | Self::ImageText => {
                config.images.hold_out > 0
            }
        }
    }

    /// Whether there is text to validate on.
    pub fn validates(self, config: &DataConfig) -> bool {
        self.holds_out(config) || config.is_validated()
    }

    /// What the split that is validated on is called: of what is held out of running text, the
    /// training split; empty for none.
    pub fn validation_split(self, config: &DataConfig) -> String {
        let is_part_of_train = config.validation.is_empty() && self.validates(config);
        if is_part_of_train { config.train.name() } else { config.validation.name() }
    }

    /// The files of a split that exist; none where its examples are drawn. A hub data set is fetched
    /// into the local hub cache.
    ///
    /// # Errors
    ///
    /// [`Error::Missing`](crate::Error::Missing) with the names that were tried, or
    /// [`Error::Hub`](crate::Error::Hub).
    pub fn files(self, config: &DataConfig, split: &Corpora) -> Result<Vec<PathBuf>> {
        match self {
            Self::Translation => crate::split_files(config, split),
            Self::LanguageModel | Self::MaskedLanguageModel => {
                running_text::reader::files(config, split)
            }
            Self::Classification | Self::Tagging | Self::QuestionAnswering => {
                self.label_of().files(config, split)
            }
            Self::ImageClassification | Self::Captions | Self::ImageText => {
                crate::images::files(config, split)
            }
            Self::InContextRegression => Ok(Vec::new()),
        }
    }

    /// Trains tokenizers on the training split, or loads those that the configuration names.
    ///
    /// # Errors
    ///
    /// If a text cannot be read, or a tokenizer not be trained or loaded.
    pub fn train_tokenizers(self, config: &DataConfig) -> Result<TokenizerPair> {
        match self {
            Self::Translation => TokenizerPair::train(config),
            Self::LanguageModel => running_text::prepare::train_tokenizer(config),
            Self::MaskedLanguageModel => masked::prepare::train_tokenizer(config),
            Self::Classification | Self::Tagging | Self::QuestionAnswering => {
                self.label_of().train_tokenizer(config)
            }
            Self::ImageClassification | Self::InContextRegression => Ok(TokenizerPair::none()),
            Self::Captions | Self::ImageText => captions::dataset::train_tokenizer(config),
        }
    }

    /// Whether there are images in it.
    pub fn reads_images(self) -> bool {
        matches!(self, Self::ImageClassification | Self::Captions | Self::ImageText)
    }

    /// Whether there is text in it, which needs a tokenizer.
    pub fn reads_text(self) -> bool {
        !matches!(self, Self::ImageClassification | Self::InContextRegression)
    }

    /// Whether the folder of a run has the tokenizers that the task needs.
    pub fn has_tokenizers(self, run: &Path) -> bool {
        !self.reads_text() || TokenizerPair::exists(run)
    }

    /// The tokenizers of the run in this folder; of a task that reads no text there are none.
    ///
    /// # Errors
    ///
    /// As for [`Tokenizer::load`](crate::Tokenizer::load).
    pub fn load_tokenizers(self, run: &Path) -> Result<TokenizerPair> {
        if self.reads_text() { TokenizerPair::load(run) } else { Ok(TokenizerPair::none()) }
    }

    /// Readies the training and validation splits of a run.
    ///
    /// The folder `run` comes to hold the tokenizers and, under `cache`, the tokenised splits; what
    /// it already holds is used as far as it still fits. Every file of the configuration is looked
    /// up before anything is written.
    ///
    /// # Errors
    ///
    /// Whatever is wrong with configuration, text, tokenizer or disk, as
    /// [`Error`](crate::Error) lists it.
    pub fn prepare(self, config: &DataConfig, run: &Path) -> Result<Prepared> {
        self.prepare_observed(config, run, &mut |_| ())
    }

    /// As [`Task::prepare`]; `observe` is told how far it has come while text is tokenised.
    ///
    /// # Errors
    ///
    /// As for [`Task::prepare`].
    pub fn prepare_observed(
        self,
        config: &DataConfig,
        run: &Path,
        observe: &mut dyn FnMut(&TokenisingProgress),
    ) -> Result<Prepared> {
        match self {
            Self::Translation => {
                pairs::prepare::prepare_observed(config, run, observe).map(Prepared::of_any)
            }
            Self::LanguageModel => {
                self.validate(config)?;
                let train = running_text::prepare::train_tokenizer;
                running_text::prepare::prepare_with(config, run, train, observe)
                    .map(Prepared::of_any)
            }
            Self::MaskedLanguageModel => {
                masked::prepare::prepare_observed(config, run, observe).map(Prepared::of_any)
            }
            Self::Classification | Self::Tagging | Self::QuestionAnswering => {
                crate::prepare_labelled(self.label_of(), config, run).map(Prepared::of_any)
            }
            Self::ImageClassification => crate::prepare_images(config, run).map(Prepared::of_any),
            Self::Captions => captions::dataset::prepare_captions(CaptionUse::Written, config, run)
                .map(Prepared::of_any),
            Self::ImageText => {
                captions::dataset::prepare_captions(CaptionUse::Compared, config, run)
                    .map(Prepared::of_any)
            }
            Self::InContextRegression => {
                regression::dataset::prepare_regression(config).map(Prepared::of_any)
            }
        }
    }

    /// Does what one process has to do before several [tokenise](Task::tokenise_share) the splits
    /// in the folder `run` together: it records what the text is, and trains the tokenizers where
    /// the run has none. Whether there is anything to tokenise then; of labelled text and images
    /// there is not, which is prepared by each process in no time.
    ///
    /// # Errors
    ///
    /// As for [`Task::prepare`].
    pub fn begin_tokenising(self, config: &DataConfig, run: &Path) -> Result<bool> {
        match self {
            Self::Translation => pairs::prepare::begin(config, run),
            Self::LanguageModel => {
                let train = running_text::prepare::train_tokenizer;
                running_text::prepare::begin(config, run, train)
            }
            Self::MaskedLanguageModel => {
                running_text::prepare::begin(config, run, masked::prepare::train_tokenizer)
            }
            _ => Ok(false),
        }
    }

    /// Tokenises a process's share of the splits into shards in the folder `run`, which
    /// [`Task::prepare`] puts together and removes. Those that are there are not made again, by
    /// whomever they were made.
    ///
    /// # Errors
    ///
    /// As for [`Task::prepare`].
    pub fn tokenise_share(
        self,
        config: &DataConfig,
        run: &Path,
        share: Share,
        observe: &mut dyn FnMut(&TokenisingProgress),
    ) -> Result<()> {
        match self {
            Self::Translation => pairs::prepare::tokenise_share(config, run, share, observe),
            Self::LanguageModel | Self::MaskedLanguageModel => {
                running_text::prepare::tokenise_share(config, run, share, observe)
            }
            _ => Ok(()),
        }
    }

    /// How the text of the training and validation splits differs from what the run in the folder
    /// `run` was prepared with: one line for each split that does. Writes nothing.
    ///
    /// # Errors
    ///
    /// If a file of the corpus is missing or cannot be read.
    pub fn corpus_changes(self, config: &DataConfig, run: &Path) -> Result<Vec<String>> {
        let mut changes = Vec::new();
        for split in [&config.train, &config.validation] {
            if !split.is_empty() {
                let files = || self.files(config, split);
                changes.extend(fingerprint::change(&split.name(), files, run)?);
            }
        }
        Ok(changes)
    }
}

/// What training needs of the data.
#[derive(Debug)]
pub struct Prepared<D: ?Sized = dyn Dataset> {
    /// The tokenizers of the run.
    pub tokenizers: TokenizerPair,
    /// The training split.
    pub train: Arc<D>,
    /// The validation split, if the configuration names one.
    pub validation: Option<Arc<D>>,
}

impl Prepared {
    /// The same, whatever the task.
    fn of_any<D: Dataset + 'static>(prepared: Prepared<D>) -> Self {
        Self {
            tokenizers: prepared.tokenizers,
            train: prepared.train,
            validation: prepared.validation.map(|split| split as _),
        }
    }
}

/// What was read of a split and what became of it, for a person to look at before training.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(untagged)]
pub enum Report<'a> {
    /// Of sentence pairs.
    Pairs(&'a DataReport),
    /// Of running text.
    Text(&'a TextReport),
    /// Of images.
    Images(&'a ImageReport),
    /// Of images with captions.
    Captions(&'a CaptionReport),
    /// Of functions.
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

/// A tokenised split, from which batches are made.
pub trait Dataset: fmt::Debug + Send + Sync {
    /// Plans an epoch.
    fn plan(
        self: Arc<Self>,
        batching: &BatchingConfig,
        seed: u64,
        epoch: u64,
    ) -> Box<dyn EpochPlan>;

    /// What its batches are like.
    fn batching(&self) -> &BatchingReport {
        self.report().batching()
    }

    /// What was read and what became of it.
    fn report(&self) -> Report<'_>;

    /// The largest factor by which batches exceed the tokens that they were planned with, since
    /// text is segmented at random in each epoch; 1 where it is not.
    ///
    /// # Errors
    ///
    /// If the data cannot be read any more.
    fn growth(self: Arc<Self>, _batching: &BatchingConfig, _seed: u64) -> Result<f64> {
        Ok(1.0)
    }

    /// The most ids that a row may have, end marks included, however text is segmented.
    fn longest_row(&self) -> usize;

    /// The budget of tokens beyond which batches are no larger, because the text is not.
    fn most_tokens(&self) -> usize {
        usize::MAX
    }

    /// A batch as large as any with a budget of so many tokens, its text being anything.
    fn largest_batch(&self, tokens: usize) -> Batch;
}

/// The batches of one epoch: a function of the data set, the settings, the seed and the epoch, so
/// that any batch can be asked for without those before it.
pub trait EpochPlan: Send + Sync {
    /// The number of batches.
    fn batches(&self) -> usize;

    /// About what a batch costs, beside others of the same data: the rows that a model computes for
    /// it. 0 where all are alike.
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
    /// If the data cannot be read any more.
    ///
    /// # Panics
    ///
    /// If there is no such batch.
    fn batch(&self, batch: usize) -> Result<Batch>;
}
