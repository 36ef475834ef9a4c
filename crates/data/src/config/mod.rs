//! Settings of data: the `[data]` table of a recipe (the TOML file with all settings of a
//! training). Each default value is written once, in an implementation of `Default` in this module
//! or its submodules.

mod batching;
mod cleaning;
mod columns;
mod format;
mod languages;
mod modifiers;
mod tokenizer;

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use batching::{AUTO, BatchingConfig};
pub use cleaning::CleaningConfig;
pub use columns::FieldsConfig;
pub use format::Format;
pub(crate) use languages::language_mark;
pub use languages::{Direction, LanguageTag, LanguagesConfig};
pub use modifiers::ModifiersConfig;
pub use tokenizer::{TokenizerConfig, TokenizerKind};

use crate::file_names::split_name;
use crate::{
    CaptionsConfig, Corpora, Error, ImagesConfig, LabelledConfig, MaskedConfig, QuestionsConfig,
    RegressionConfig, Result, RunningTextConfig,
};

/// Name of a validation set that was drawn from the training text. Reports use it, and it is
/// accepted as the name of a split.
pub(crate) const HELD_OUT: &str = "held-out";

/// Place of the text, and the steps that turn it into input for the model.
///
/// With `format = "text"` a corpus named `train` is the pair of files
/// `{dir}/train.{source_language}` and `{dir}/train.{target_language}`; each file may end in `.gz`,
/// `.zst`, `.xz`, `.bz2` or `.zip`. In the other formats both sides are in one file,
/// `{dir}/train.tsv`, `.csv`, `.jsonl`, `.parquet`, `.tmx`, `.xlf`, `.po` or `.zip`. A corpus may
/// also be any two text files or any single file of these formats, see [`Corpus`](crate::Corpus).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DataConfig {
    /// Folder of the corpora that are given by a stem, which is the name of their files without the
    /// ending: `"train"` is the files `train.en` and `train.de` in this folder, for example.
    #[schemars(
        extend("x-names" = "data_dir data_path dataset_dir dataset_path"),
        extend("x-change" = "free")
    )]
    pub dir: PathBuf,
    /// Source language, such as `en`. With `data.format = "text"`, it is also the ending of the
    /// names of files with source sentences.
    #[schemars(
        extend("x-names" = "src src_lang source_lang source source_language_code"),
        extend("x-idle" = ["not-translation"])
    )]
    pub source_language: String,
    /// Target language, such as `de`. With `data.format = "text"`, it is also the ending of the
    /// names of files with target sentences.
    #[schemars(
        extend("x-names" = "tgt trg tgt_lang trg_lang target_lang target target_language_code"),
        extend("x-idle" = ["not-translation"])
    )]
    pub target_language: String,
    /// Text before every source, in training and in translation, such as the name of a task:
    /// `"translate English to German: "` (Raffel et al. 2020). By default no text is added.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(
        extend("x-names" = "prefix task_prefix instruction"),
        extend("x-change" = "accepted"),
        extend("x-idle" = ["not-translation"])
    )]
    pub source_prefix: String,
    /// The training corpora: a stem in `data.dir`, two files `{ source = "a.txt", target = "b.txt"
    /// }`, a table `{ file = "pairs.tsv" }`, or a list of these, each of which may have a weight
    /// and a tag: `{ stem = "news", weight = 2, tag = "<news>" }`.
    #[schemars(
        extend("x-names" = "train_file train_data train_set train_sets train_path trainset \
            trainpref")
    )]
    pub train: Corpora,
    /// The validation corpora, written like `data.train`; empty for none.
    #[schemars(
        extend("x-names" = "val dev valid val_set dev_set valid_set valid_sets validset validpref \
            validation_file validation_data valid_data")
    )]
    pub validation: Corpora,
    /// The test sets, written like `data.train`; empty for none. Each set is scored separately.
    #[schemars(
        extend("x-names" = "test_file test_set test_data testpref testset"),
        extend("x-change" = "free")
    )]
    pub test: Corpora,
    /// Number of pairs that are drawn at random from the training text, with `training.seed`, as
    /// the validation set. Their source sentences are removed from the training text. 0 draws none.
    pub hold_out: u64,
    /// Storage format of the pairs.
    pub format: Format,
    /// Whether to apply Unicode normalisation form KC to the text before it is tokenised.
    #[schemars(extend("x-change" = "never"), extend("x-idle" = ["no-text"]))]
    pub nfkc: bool,
    /// Whether to lowercase the text before it is tokenised.
    #[schemars(
        extend("x-names" = "do_lower_case lower_case uncased to_lower"),
        extend("x-change" = "never"),
        extend("x-idle" = ["no-text"])
    )]
    pub lowercase: bool,
    /// Number of epochs, at the beginning, that train both directions: each pair is used unchanged
    /// and with its sides exchanged, mixed in the same batches (Ding, Wu and Tao 2021, section 3).
    /// Later epochs train only the requested direction. Needs `data.tokenizer.joint`.
    #[schemars(extend("x-idle" = ["not-translation"]))]
    pub bidirectional_epochs: u64,
    /// Columns or fields of tables: of the two sides, of texts and of labels.
    pub fields: FieldsConfig,
    /// The data set on the Hugging Face hub, for `format = "hub"`.
    #[schemars(extend("x-idle" = ["not-hub"]))]
    pub hub: HubConfig,
    /// Division of running text, for language models.
    pub text: RunningTextConfig,
    /// Prediction task of masked language models.
    #[schemars(extend("x-idle" = ["not-masked"]))]
    pub masked: MaskedConfig,
    /// Training data of classifiers.
    pub labelled: LabelledConfig,
    /// Reading of questions about texts.
    #[schemars(extend("x-idle" = ["not-question-answering"]))]
    pub questions: QuestionsConfig,
    /// Training data of models of images.
    #[schemars(extend("x-idle" = ["no-images"]))]
    pub images: ImagesConfig,
    /// Captions of images.
    #[schemars(extend("x-idle" = ["no-captions"]))]
    pub captions: CaptionsConfig,
    /// Linear functions `y = w·x` that are drawn at random as examples.
    #[schemars(extend("x-idle" = ["not-regression"]))]
    pub regression: RegressionConfig,
    /// Rules by which pairs are dropped.
    #[schemars(extend("x-idle" = ["not-translation"]))]
    pub cleaning: CleaningConfig,
    /// Settings of a model that translates in several directions.
    #[schemars(extend("x-idle" = ["not-translation"]))]
    pub languages: LanguagesConfig,
    /// Changes to training pairs that make a model robust. Each key is the probability of its
    /// change.
    #[schemars(extend("x-idle" = ["not-translation"]))]
    pub modifiers: ModifiersConfig,
    /// Conversion of text to ids.
    #[schemars(extend("x-change" = "never"))]
    pub tokenizer: TokenizerConfig,
    /// Assembly of pairs into batches.
    pub batching: BatchingConfig,
}

impl Default for DataConfig {
    fn default() -> Self {
        Self {
            dir: PathBuf::from("data"),
            source_language: "en".to_owned(),
            target_language: "de".to_owned(),
            source_prefix: String::new(),
            train: "train".into(),
            validation: "val".into(),
            test: "test".into(),
            hold_out: 0,
            format: Format::Text,
            nfkc: false,
            lowercase: false,
            bidirectional_epochs: 0,
            fields: FieldsConfig::default(),
            hub: HubConfig::default(),
            text: RunningTextConfig::default(),
            masked: MaskedConfig::default(),
            labelled: LabelledConfig::default(),
            questions: QuestionsConfig::default(),
            images: ImagesConfig::default(),
            captions: CaptionsConfig::default(),
            regression: RegressionConfig::default(),
            cleaning: CleaningConfig::default(),
            languages: LanguagesConfig::default(),
            modifiers: ModifiersConfig::default(),
            tokenizer: TokenizerConfig::default(),
            batching: BatchingConfig::default(),
        }
    }
}

/// One side of a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// The side translated from.
    Source,
    /// The side translated into.
    Target,
}

/// A data set on the Hugging Face hub.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HubConfig {
    /// Id of the data set, `owner/name`.
    #[schemars(extend("x-names" = "dataset dataset_name hf_dataset"))]
    pub dataset: String,
    /// The configuration (subset) of the data set; empty if it has only one.
    pub config: String,
}

impl DataConfig {
    /// The language of a side.
    pub fn language(&self, side: Side) -> &str {
        match side {
            Side::Source => &self.source_language,
            Side::Target => &self.target_language,
        }
    }

    /// True if there is a validation set, either named in the recipe or drawn from the training
    /// text.
    pub fn is_validated(&self) -> bool {
        self.hold_out > 0 || !self.validation.is_empty()
    }

    /// True if the validation set was drawn from the training text.
    pub(crate) fn holds_out(&self) -> bool {
        self.hold_out > 0 && self.validation.name() == HELD_OUT
    }

    /// Corpora of the split called `name`. The name is looked up first among the test sets, then
    /// among the training and validation splits, and then among the single corpora of training and
    /// validation. If nothing has this name, `name` is taken as the stem of files in the corpus
    /// folder.
    pub fn split(&self, name: &str) -> Corpora {
        let named = |split: &Corpora| split.iter().find(|corpus| corpus.name() == name).cloned();
        if let Some(corpus) = named(&self.test) {
            return (&corpus).into();
        }
        let splits = [&self.validation, &self.train];
        if let Some(known) = splits.into_iter().find(|split| split.name() == name) {
            return known.clone();
        }
        // `name` may be a single corpus of a split, for example the corpus of one direction.
        let one = splits.into_iter().find_map(named);
        one.as_ref().map_or_else(|| name.into(), Corpora::from)
    }

    /// Tags of all corpora, sorted and without repetitions.
    pub(crate) fn tags(&self) -> Vec<String> {
        let splits = [&self.train, &self.validation, &self.test];
        let all =
            splits.into_iter().flat_map(|split| split.iter().map(|corpus| corpus.tag.clone()));
        let mut tags: Vec<String> = all.filter(|tag| !tag.is_empty()).collect();
        tags.sort_unstable();
        tags.dedup();
        tags
    }

    /// Refuses settings, and combinations of settings, that are impossible whatever the task is.
    ///
    /// # Errors
    ///
    /// [`Error::Config`], with the offending key, if a value or a combination cannot work.
    pub(crate) fn validate(&self) -> Result<()> {
        let wrong = |key, message: &str| Err(Error::Config { key, message: message.to_owned() });
        self.validate_splits()?;
        if self.text.block_length == 0 {
            return wrong("data.text.block_length", "must be at least 1");
        }
        if !(0.0..1.0).contains(&self.text.hold_out) {
            return wrong("data.text.hold_out", "must be at least 0 and below 1");
        }
        if !(self.masked.rate > 0.0 && self.masked.rate < 1.0) {
            return wrong("data.masked.rate", "must be above 0 and below 1");
        }
        if self.labelled.max_tokens < self.labelled.shortest_row() {
            return wrong(
                "data.labelled.max_tokens",
                "must have room for the marks and a token of each text: at least 3, or 5 if rows \
                 have two texts",
            );
        }
        if self.captions.max_tokens == 0 {
            return wrong("data.captions.max_tokens", "must be at least 1");
        }
        if self.batching.max_tokens == 0 {
            return wrong("data.batching.max_tokens", "must be at least 1");
        }
        if !(0.0..=1.0).contains(&self.batching.length_noise) {
            return wrong("data.batching.length_noise", "must lie between 0 and 1");
        }
        self.images.validate()?;
        self.regression.validate()?;
        self.questions.validate()?;
        let has_links = self.train.iter().any(|corpus| corpus.has_links());
        self.modifiers.validate(self.lowercase, has_links)?;
        self.tokenizer.validate(self.nfkc || self.lowercase)
    }

    /// Refuses impossible corpora, and splits or settings of training that cannot be combined.
    fn validate_splits(&self) -> Result<()> {
        let wrong = |key, message: &str| Err(Error::Config { key, message: message.to_owned() });
        if self.train.is_empty() {
            return wrong("data.train", "is empty; name the training split, for example \"train\"");
        }
        self.train.validate("data.train", true)?;
        self.validation.validate("data.validation", false)?;
        self.test.validate("data.test", false)?;
        if split_name(&self.train.name()) == split_name(&self.validation.name()) {
            return wrong(
                "data.validation",
                "would have the same name in the run's folder as data.train; give one of them \
                 another: { name = \"…\", … }",
            );
        }
        let mut names: Vec<String> =
            self.test.iter().map(|corpus| split_name(&corpus.name())).collect();
        names.sort_unstable();
        if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            let message = format!(
                "two test sets are called {:?}; give one of them another name: {{ name = \"…\", \
                 … }}",
                twice[0]
            );
            return wrong("data.test", &message);
        }
        if self.hold_out > 0 && !self.validation.is_empty() && !self.holds_out() {
            return wrong(
                "data.hold_out",
                "draws the validation set from the training text, and data.validation names \
                 another: leave one of them out",
            );
        }
        if self.bidirectional_epochs > 0 && self.train.iter().any(|corpus| !corpus.tag.is_empty()) {
            return wrong(
                "data.bidirectional_epochs",
                "turns pairs round, and a tag belongs before a source: set it to 0, or leave the \
                 tags out",
            );
        }
        Ok(())
    }
}
