//! The run configuration: a recipe (TOML file), completed with overrides from the command line and
//! with defaults.
//!
//! The type of each section is defined in the crate that uses it, so that each default is defined
//! in one place only.

mod conditions;
mod diagnose;
mod did_you_mean;
mod differences;
mod evaluation;
mod explain;
mod identity;
mod keys;
mod logging;
mod overrides;
pub(crate) mod paths;
pub(crate) mod text;
mod without_effect;

use std::path::Path;

use anyhow::{Context, Result, anyhow, bail, ensure};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use taper_data::{Corpora, Corpus, DataConfig, Direction, Task, read_regular, text_of};
use taper_decoding::DecodingConfig;
use taper_model::{Architecture, ModelConfig};
use taper_trainer::{Metric, TrainingConfig};

use crate::checks::dtype_choice::AUTO_DTYPE;
use crate::tasks::entry;

pub(crate) use did_you_mean::nearest;
pub use differences::{Difference, differences, every_difference};
pub(crate) use differences::{described, training_differences};
pub use evaluation::EvaluationConfig;
pub(crate) use evaluation::usual_tokenizer;
pub use explain::{annotated, explain, reference};
pub use identity::trained_with;
pub(crate) use identity::{recipe, validation_changes, validation_identity};
pub use keys::schema;
pub(crate) use keys::{Change, Weights, key_around, keys};
pub use logging::LoggingConfig;
pub(crate) use overrides::Override;
pub use without_effect::without_effect;

/// Largest size of a recipe file in bytes, far above any real recipe.
const MOST_BYTES: u64 = 1 << 24;

/// Everything that determines a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RunConfig {
    /// Name for reports; empty: the name of the recipe's file.
    pub name: String,
    /// Task to train: translation, language-model, masked-language-model, classification, tagging,
    /// question-answering, image-classification, captions, image-text or in-context-regression.
    #[schemars(extend("x-change" = "never"))]
    pub task: Task,
    /// Device of the computation: `auto` (a GPU if there is one), `cpu`, `cuda`, `cuda:N` or
    /// `metal`.
    #[schemars(extend("x-names" = "use_cuda cuda gpu gpus use_gpu accelerator gpu_ranks"))]
    pub device: String,
    /// Number type of the computation: `auto`, `f32`, `bf16` or `f16`. `auto` chooses the faster of
    /// f32 and bf16 on the machine on which the run begins; the run then keeps this type.
    #[schemars(
        extend("x-names" = "fp16 bf16 amp precision half mixed_precision model_dtype"),
        extend("x-change" = "accepted")
    )]
    pub dtype: String,
    /// Number of threads for the CPU; 0 takes every core. Results do not depend on it.
    #[schemars(extend("x-names" = "num_threads num_workers cpu_threads workers n_jobs"))]
    pub threads: usize,
    /// Text, tokenizer and batches.
    #[schemars(extend("x-change" = "accepted"))]
    pub data: DataConfig,
    /// Architecture of the model.
    #[schemars(extend("x-change" = "accepted"))]
    pub model: ModelConfig,
    /// Loss, optimizer, schedule, stopping, checkpoints.
    pub training: TrainingConfig,
    /// Search for translations.
    pub decoding: DecodingConfig,
    /// Scoring of translations.
    pub evaluation: EvaluationConfig,
    /// Records for other programs.
    pub logging: LoggingConfig,
}

impl Default for RunConfig {
    fn default() -> Self {
        Self {
            name: String::new(),
            task: Task::default(),
            device: "auto".to_owned(),
            dtype: AUTO_DTYPE.to_owned(),
            threads: 0,
            data: DataConfig::default(),
            model: ModelConfig::default(),
            training: TrainingConfig::default(),
            decoding: DecodingConfig::default(),
            evaluation: EvaluationConfig::default(),
            logging: LoggingConfig::default(),
        }
    }
}

impl RunConfig {
    /// Reads the recipe at `path`, and applies `overrides` in order. Relative paths in the recipe
    /// start at the folder of the recipe. Patterns of file names are replaced by the files that
    /// match them. The configuration is then checked.
    ///
    /// # Errors
    /// When the recipe cannot be read or is not valid; the message names the file or the override,
    /// the line and the key.
    pub fn load(path: &Path, overrides: &[String]) -> Result<Self> {
        Self::load_recipe(path, overrides, None)
    }

    /// Returns the name of the recipe at `path` with `overrides`: the value of its key `name`, or
    /// else the name of its file. No other key is checked, so this needs no model, in contrast to
    /// [`load_beginning_as`](Self::load_beginning_as).
    ///
    /// # Errors
    /// When the recipe cannot be read or is not TOML, or an override is not valid.
    pub fn name_of(path: &Path, overrides: &[String]) -> Result<String> {
        let table = Self::table(&read_text(path)?, path, &parsed(overrides)?, |_, _| {})?;
        let name = table.get("name").and_then(toml::Value::as_str);
        Ok(name.filter(|name| !name.is_empty()).map_or_else(|| stem(path), str::to_owned))
    }

    /// Reads a recipe in the same way as [`load`](Self::load), for a run that begins with the
    /// weights of another run: keys of `[model]` that the recipe does not set get their values from
    /// `model`.
    ///
    /// # Errors
    /// See [`load`](Self::load).
    pub fn load_beginning_as(
        path: &Path,
        overrides: &[String],
        model: &ModelConfig,
    ) -> Result<Self> {
        Self::load_recipe(path, overrides, Some(model))
    }

    /// Reads a recipe from `text` in the same way as [`load`](Self::load), as if it were in a file
    /// at `path`; with `model`, in the same way as [`load_beginning_as`](Self::load_beginning_as).
    ///
    /// # Errors
    /// See [`load`](Self::load).
    pub fn parse(
        text: &str,
        path: &Path,
        overrides: &[String],
        model: Option<&ModelConfig>,
    ) -> Result<Self> {
        Self::read(text, path, overrides, model, |table, folder| {
            let data = table.entry("data").or_insert_with(|| toml::Table::new().into());
            if let Some(data) = data.as_table_mut() {
                let usual = DataConfig::default().dir.display().to_string();
                data.entry("dir").or_insert(usual.into());
            }
            paths::resolve(table, folder);
        })
    }

    fn load_recipe(path: &Path, overrides: &[String], model: Option<&ModelConfig>) -> Result<Self> {
        Self::parse(&read_text(path)?, path, overrides, model)
    }

    /// Reads the configuration of a run (the folder of a training) in the same way as
    /// [`load`](Self::load) reads a recipe. Its paths are absolute, except for files in the run.
    /// (In runs of earlier versions, paths are those of the recipe, relative to the folder in which
    /// training was started.)
    ///
    /// # Errors
    /// See [`load`](Self::load).
    pub(crate) fn load_of_run(path: &Path, overrides: &[String]) -> Result<Self> {
        Self::read(&read_text(path)?, path, overrides, None, |table, folder| {
            if let Some(data) = table.get_mut("data").and_then(toml::Value::as_table_mut) {
                paths::resolve_corpora(data, folder);
            }
        })
    }

    fn read(
        text: &str,
        path: &Path,
        overrides: &[String],
        model: Option<&ModelConfig>,
        resolve: impl FnOnce(&mut toml::Table, &Path),
    ) -> Result<Self> {
        let overrides = parsed(overrides)?;
        let mut table = Self::table(text, path, &overrides, resolve)?;
        if let Some(model) = model {
            complete_model(&mut table, model)?;
        }
        let names = |key: &str| table.get("data").and_then(|data| data.get(key)).is_some();
        let (names_validation, names_test) = (names("validation"), names("test"));
        let names_tokenizer =
            table.get("evaluation").and_then(|section| section.get("tokenize")).is_some();
        let mut config: Self =
            text::from_table(&table).map_err(|error| at_fault(text, path, &overrides, error))?;
        if !names_tokenizer {
            config.evaluation.tokenize = usual_tokenizer(&config.data.target_language);
        }
        if config.name.is_empty() {
            config.name = stem(path);
        }
        // If a recipe names its training files, the default validation and test files, which have
        // usual names in the corpus folder, are not looked for.
        let data = &mut config.data;
        let has_stem = data.train.iter().any(|corpus| !corpus.stem.is_empty());
        if !names_validation && (config.task.holds_out(data) || !has_stem) {
            data.validation = Corpora::default();
        }
        if !names_test && !has_stem {
            data.test = Corpora::default();
        }
        if entry(config.task).translates && has_stem {
            name_directions(data, !names_validation, !names_test);
        }
        config.task.expand(&mut config.data).with_context(|| path.display().to_string())?;
        config.validate().with_context(|| path.display().to_string())?;
        Ok(config)
    }

    /// Reads the keys of a recipe, resolves its paths, and applies `overrides`.
    fn table(
        text: &str,
        path: &Path,
        overrides: &[Override],
        resolve: impl FnOnce(&mut toml::Table, &Path),
    ) -> Result<toml::Table> {
        let mut table: toml::Table = match text.parse() {
            Ok(table) => table,
            Err(error) => return Err(at_fault(text, path, overrides, error)),
        };
        resolve(&mut table, path.parent().unwrap_or(Path::new("")));
        for change in overrides {
            let applied = change.with_resolved_paths().apply(&mut table);
            applied.map_err(|error| at_fault(text, path, overrides, error))?;
        }
        Ok(table)
    }

    /// Checks the values of each section, and that sections are compatible with each other.
    ///
    /// # Errors
    /// When a value or a combination of values cannot work.
    pub fn validate(&self) -> Result<()> {
        crate::checks::device::check_names(&self.device, &self.dtype)?;
        self.task.validate(&self.data)?;
        let task = entry(self.task);
        if !task.translates {
            self.model.require_transformer()?;
        }
        let one_vocabulary = !task.translates || self.data.tokenizer.joint;
        self.model.validate(one_vocabulary)?;
        self.training.check()?;
        if self.training.checkpoint_activations && self.model.experts.count > 0 {
            bail!(
                "training.checkpoint_activations does not go with model.experts.count = {}: experts \
                 add to the loss, which layers that are computed again cannot",
                self.model.experts.count
            );
        }
        self.decoding.validate()?;
        ensure!(
            task.translates || !self.decoding.shortlist,
            "decoding.shortlist is only for translation, but task is {}: set it to false",
            self.task
        );
        self.validate_guidance()
    }

    /// Checks that guided attention, if it is on, has a head to guide, and word links (alignments)
    /// to guide it by.
    fn validate_guidance(&self) -> Result<()> {
        let guided = &self.training.guided_alignment;
        if guided.guidance().is_none() || !entry(self.task).translates {
            return Ok(());
        }
        ensure!(
            self.model.architecture == Architecture::Transformer,
            "training.guided_alignment.weight is {}: attention can be guided only in a Transformer \
             (model.architecture); set the weight to 0",
            guided.weight
        );
        let (layers, heads) = (self.model.decoder_layers, self.model.heads);
        if guided.layer > layers {
            bail!(
                "training.guided_alignment.layer is {}: the decoder has {layers} layers (0 is the \
                 last but one)",
                guided.layer
            );
        }
        if guided.head > heads {
            bail!("training.guided_alignment.head is {}: a layer has {heads} heads", guided.head);
        }
        ensure!(
            self.data.train.iter().any(taper_data::Corpus::has_links),
            "training.guided_alignment.weight is {}, but no corpus of data.train has word \
                 links: name a file of them, as in data.train = {{ stem = \"train\", links = \
                 \"train.links\" }}, or set the weight to 0",
            guided.weight
        );
        Ok(())
    }

    /// Checks that validations measure the metric that early stopping watches. The check comes
    /// before the first update; otherwise this error could end a training after hours.
    ///
    /// # Errors
    /// If no validation measures the metric. The error names the keys to change.
    pub fn require_what_is_watched(&self) -> Result<()> {
        let watched = &self.training.early_stopping;
        let of_translations = matches!(watched.metric, Metric::Bleu | Metric::Chrf);
        let of_classes = matches!(watched.metric, Metric::Perplexity | Metric::Accuracy);
        if !self.task.validates(&self.data) {
            if watched.patience > 0 {
                bail!(
                    "training.early_stopping.patience = {} needs a validation split: set \
                     data.validation or data.hold_out, or a patience of 0",
                    watched.patience
                );
            }
        } else if of_translations && !entry(self.task).translates {
            bail!(
                "training.early_stopping.metric = \"{}\" is measured on translations, but this \
                 task has none: watch \"loss\" or \"perplexity\"",
                watched.metric
            );
        } else if of_classes && !entry(self.task).predicts_classes {
            bail!(
                "training.early_stopping.metric = \"{}\" is for classes, and this task predicts \
                 numbers: watch \"loss\", the squared error",
                watched.metric
            );
        } else if of_translations && self.evaluation.validation_sentences == 0 {
            bail!(
                "training.early_stopping.metric = \"{}\" is measured on translations: set \
                 evaluation.validation_sentences above 0, or watch \"loss\"",
                watched.metric
            );
        }
        Ok(())
    }

    /// Settings for scoring texts with this recipe. If the recipe lowercases the data, these
    /// settings have `lowercase` set, because references are then in lower case, and the signature
    /// of the scores must report it.
    pub fn scoring(&self) -> EvaluationConfig {
        EvaluationConfig {
            lowercase: self.evaluation.lowercase || self.data.lowercase,
            ..self.evaluation.clone()
        }
    }

    /// Recipe with the languages of `direction`. If the tokenizer for BLEU is the default for the
    /// recipe's target language, it becomes the default for the new target language; another
    /// tokenizer is kept.
    #[must_use]
    pub(crate) fn in_direction(&self, direction: &Direction) -> Self {
        let mut config = Self { data: self.data.toward(direction), ..self.clone() };
        if self.evaluation.tokenize == usual_tokenizer(&self.data.target_language) {
            config.evaluation.tokenize = usual_tokenizer(&direction.to);
        }
        config
    }
}

/// For a recipe with several directions of translation, replaces the default validation and test
/// sets by the usual files of each direction. `validation` and `test` tell whether the recipe
/// leaves the default of that set in place.
fn name_directions(data: &mut DataConfig, validation: bool, test: bool) {
    let directions = data.trained_directions();
    let is_of_data =
        |one: &Direction| (&one.from, &one.to) == (&data.source_language, &data.target_language);
    if directions.iter().all(is_of_data) {
        return;
    }
    let of_each = |split: &Corpora| {
        let in_direction = |corpus: &Corpus, Direction { from, to }: &Direction| Corpus {
            from: from.clone(),
            to: to.clone(),
            ..corpus.clone()
        };
        let each = |corpus| directions.iter().map(move |direction| in_direction(corpus, direction));
        Corpora(split.iter().flat_map(each).collect())
    };
    for (split, is_usual) in [(&mut data.validation, validation), (&mut data.test, test)] {
        if is_usual {
            *split = of_each(split);
        }
    }
}

/// Completes the section `[model]` of `recipe`: keys that the recipe does not set get their values
/// from `model`.
fn complete_model(recipe: &mut toml::Table, model: &ModelConfig) -> Result<()> {
    fn complete(table: &mut toml::Table, with: toml::Table) {
        for (key, value) in with {
            match (table.get_mut(&key), value) {
                (None, value) => drop(table.insert(key, value)),
                (Some(toml::Value::Table(section)), toml::Value::Table(value)) => {
                    complete(section, value)
                }
                (Some(_), _) => {}
            }
        }
    }
    let mut model = text::table(model)?;
    // `embeddings` names files of initial embeddings. Those of the parent run are already part of
    // its weights.
    model.remove("embeddings");
    // The parent run's adapters are already added to its weights.
    model.remove("lora");
    let section = recipe.entry("model").or_insert_with(|| toml::Table::new().into());
    if let Some(section) = section.as_table_mut() {
        complete(section, model);
    }
    Ok(())
}

fn parsed(overrides: &[String]) -> Result<Vec<Override>> {
    overrides.iter().map(|text| Override::parse(text)).collect()
}

/// File name without its extension, or `run` if the path has no file name.
fn stem(path: &Path) -> String {
    path.file_stem().map_or_else(|| "run".to_owned(), |stem| stem.to_string_lossy().into_owned())
}

fn read_text(path: &Path) -> Result<String> {
    let bytes = read_regular(path, MOST_BYTES)
        .with_context(|| format!("cannot read {}", path.display()))?;
    Ok(text_of(&bytes, path)?)
}

/// Error to report for the recipe `text` at `path` with `overrides`. If the recipe alone is wrong,
/// this is its error; otherwise it is the error of the first override that is wrong by itself. If
/// each is right by itself, it is `error`, which occurred when they were combined.
fn at_fault(
    text: &str,
    path: &Path,
    overrides: &[Override],
    error: impl Into<anyhow::Error>,
) -> anyhow::Error {
    let of_file = parse(text, &path.display().to_string(), true).err();
    let of_override = |one: &Override| {
        parse(&one.to_table().to_string(), &format!("override {}", one.text), false).err()
    };
    of_file
        .or_else(|| overrides.iter().find_map(of_override))
        .unwrap_or_else(|| error.into().context(format!("{} with its overrides", path.display())))
}

/// Parses the configuration `text`. Messages begin with `origin`, the name of the file or override
/// it comes from. They have a line number only if `is_file`, because an override has only one line.
fn parse(text: &str, origin: &str, is_file: bool) -> Result<RunConfig> {
    toml::from_str(text).map_err(|error| {
        let diagnosis = diagnose::diagnose(text, &error);
        match diagnosis.line {
            Some(line) if is_file => anyhow!("{origin}:{line}: {}", diagnosis.message),
            _ => anyhow!("{origin}: {}", diagnosis.message),
        }
    })
}
