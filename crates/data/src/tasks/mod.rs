//! The tasks that models are trained for. Each task makes batches from its own kind of corpus.
//!
//! Each task has a folder here. Its code finds the files of a split and prepares them; for example,
//! text is tokenised into a cache. The result is a [`Dataset`], from which any batch can be
//! requested by its position. [`Task`] is the only list of tasks.

use std::fmt;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::corpora::{expand_pairs, expand_texts};
use crate::text::fingerprint;
use crate::{
    CaptionUse, Corpora, DataConfig, LabelOf, Result, Share, TokenisingProgress, TokenizerPair,
};

pub(crate) mod captions;
mod dataset;
pub(crate) mod images;
pub(crate) mod labelled;
pub(crate) mod masked;
pub(crate) mod pairs;
pub(crate) mod questions;
pub(crate) mod regression;
pub(crate) mod running_text;

pub use dataset::{Dataset, EpochPlan, Prepared, Report};

/// Task for which a model is trained, named by the object of its predictions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Task {
    /// Predicts a sentence in another language.
    #[default]
    Translation,
    /// Predicts each token of running text from the tokens before it.
    LanguageModel,
    /// Predicts hidden tokens of running text from the tokens on both sides.
    MaskedLanguageModel,
    /// Predicts the label of a text.
    Classification,
    /// Predicts the tag of each word of a text.
    Tagging,
    /// Predicts the span of a text that answers a question about it.
    QuestionAnswering,
    /// Predicts the label of an image.
    ImageClassification,
    /// Predicts a sentence that describes an image.
    Captions,
    /// Finds the text among several that matches an image, and the image among several that matches
    /// a text.
    ImageText,
    /// Predicts the value of a function from some of its points.
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
    /// Refuses settings, and combinations of settings, that cannot work, before any file is
    /// touched.
    ///
    /// # Errors
    ///
    /// [`Error::Config`](crate::Error::Config), with the offending key, if a setting or a
    /// combination cannot work.
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

    /// Replaces patterns of file names, such as `train.*.gz`, by the files that they currently
    /// match, sorted by name. A pattern without a match stays as it is, and is refused when it is
    /// read. For images, patterns are not replaced.
    ///
    /// # Errors
    ///
    /// [`Error::Malformed`](crate::Error::Malformed) with the pattern, if it matches something that
    /// is not a file, or if the files of the two sides cannot be matched to each other.
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

    /// Short name of what a model of the task predicts, such as `tok` for tokens. Speed is measured
    /// in this unit.
    #[must_use]
    pub fn answers(self) -> &'static str {
        match self {
            Self::Translation | Self::LanguageModel | Self::MaskedLanguageModel => "tok",
            Self::Captions => "tok",
            Self::Classification => "texts",
            Self::Tagging => "words",
            // A model predicts the two ends of each answer: its first and its last token.
            Self::QuestionAnswering => "ends",
            Self::ImageClassification => "images",
            Self::ImageText => "pairs",
            Self::InContextRegression => "points",
        }
    }

    /// Unit of text to which the task assigns a label. Meaningful only for the three tasks of
    /// labelled texts.
    fn label_of(self) -> LabelOf {
        match self {
            Self::Tagging => LabelOf::Word,
            Self::QuestionAnswering => LabelOf::Question,
            _ => LabelOf::Text,
        }
    }

    /// True if a part of the training data is held out for validation.
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

    /// True if there are data for validation.
    pub fn validates(self, config: &DataConfig) -> bool {
        self.holds_out(config) || config.is_validated()
    }

    /// Name of the validation split. This is the training split if validation data are held out
    /// from it. Empty if there is no validation.
    pub fn validation_split(self, config: &DataConfig) -> String {
        let is_part_of_train = config.validation.is_empty() && self.validates(config);
        if is_part_of_train { config.train.name() } else { config.validation.name() }
    }

    /// Existing files of a split; empty if its examples are made from random numbers. A hub data
    /// set is fetched into the local hub cache.
    ///
    /// # Errors
    ///
    /// [`Error::Missing`](crate::Error::Missing), with the names that were tried, if a file is
    /// missing, or [`Error::Hub`](crate::Error::Hub).
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

    /// Trains tokenizers on the training split, or loads the configured ones.
    ///
    /// # Errors
    ///
    /// If a text cannot be read, or a tokenizer cannot be trained or loaded.
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

    /// True if the task has images.
    pub fn reads_images(self) -> bool {
        matches!(self, Self::ImageClassification | Self::Captions | Self::ImageText)
    }

    /// True if the task has text, which needs a tokenizer.
    pub fn reads_text(self) -> bool {
        !matches!(self, Self::ImageClassification | Self::InContextRegression)
    }

    /// True if the folder `run` contains the tokenizers that the task needs.
    pub fn has_tokenizers(self, run: &Path) -> bool {
        !self.reads_text() || TokenizerPair::exists(run)
    }

    /// Loads the tokenizers of the run in the folder `run`, or [`TokenizerPair::none`] for a task
    /// without text.
    ///
    /// # Errors
    ///
    /// See [`Tokenizer::load`](crate::Tokenizer::load).
    pub fn load_tokenizers(self, run: &Path) -> Result<TokenizerPair> {
        if self.reads_text() { TokenizerPair::load(run) } else { Ok(TokenizerPair::none()) }
    }

    /// Prepares the training and validation splits of a run.
    ///
    /// Writes the tokenizers to the folder `run`, and the tokenised splits to `cache` in this
    /// folder. Existing tokenizers and tokenised splits are used if they still fit. Every file of
    /// the configuration is looked up before anything is written.
    ///
    /// # Errors
    ///
    /// Any fault of configuration, text, tokenizer or disk, see [`Error`](crate::Error).
    pub fn prepare(self, config: &DataConfig, run: &Path) -> Result<Prepared> {
        self.prepare_observed(config, run, &mut |_| ())
    }

    /// Prepares like [`Task::prepare`], and reports progress to `observe` while text is tokenised.
    ///
    /// # Errors
    ///
    /// See [`Task::prepare`].
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

    /// Prepares for calls of [`Task::tokenise_share`] by several processes. Only one process calls
    /// this function, before them. It records a hash of the text in the folder `run`, and trains
    /// the tokenizers if the run has none. Returns true if there is anything to tokenise. Labelled
    /// texts and images need no shared work, because each process prepares them in negligible time.
    ///
    /// # Errors
    ///
    /// See [`Task::prepare`].
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

    /// Tokenises this process's share of the splits, which several processes tokenise together. The
    /// results, in files called shards, are written to the folder `run`; [`Task::prepare`] joins
    /// and removes them. Existing shards are kept, whichever process made them.
    ///
    /// # Errors
    ///
    /// See [`Task::prepare`].
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

    /// Compares the current text of the training and validation splits with the text with which the
    /// run in the folder `run` was prepared. Returns a one-line description for each split that has
    /// changed. Writes nothing.
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
