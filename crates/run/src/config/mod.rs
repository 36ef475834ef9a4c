//! The run configuration: one TOML file, resolved with overrides and defaults.
//!
//! Each section is the configuration type of the crate that uses it, so a
//! default stands in one place only.

mod diagnose;
mod did_you_mean;
mod differences;
mod elsewhere;
mod evaluation;
mod identity;
mod keys;
mod nearest;
mod overrides;
mod without_effect;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use taper_data::{DataConfig, Task};
use taper_decoding::DecodingConfig;
use taper_model::ModelConfig;
use taper_trainer::{Metric, TrainingConfig};

pub use differences::{differences, is_fixed};
pub use evaluation::EvaluationConfig;
pub(crate) use evaluation::usual_tokenizer;
pub use identity::trained_with;
pub(crate) use identity::{recipe, validation_changes, validation_identity};
use overrides::Override;
pub use without_effect::without_effect;

/// Everything that determines a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RunConfig {
    /// A name for reports; empty: the name of the recipe's file.
    pub name: String,
    /// auto, cpu, cuda, cuda:N or metal.
    pub device: String,
    /// Type of the computation: f32, bf16 or f16.
    pub dtype: String,
    /// Threads for the CPU; 0 takes every core. Results do not depend on it.
    pub threads: usize,
    /// The text, its tokenizer and its batches.
    pub data: DataConfig,
    /// The architecture.
    pub model: ModelConfig,
    /// Loss, optimizer, schedule, stopping, checkpoints.
    pub training: TrainingConfig,
    /// The search for translations.
    pub decoding: DecodingConfig,
    /// How translations are scored.
    pub evaluation: EvaluationConfig,
}

impl Default for RunConfig {
    fn default() -> Self {
        Self {
            name: String::new(),
            device: "auto".to_owned(),
            dtype: "f32".to_owned(),
            threads: 0,
            data: DataConfig::default(),
            model: ModelConfig::default(),
            training: TrainingConfig::default(),
            decoding: DecodingConfig::default(),
            evaluation: EvaluationConfig::default(),
        }
    }
}

impl RunConfig {
    /// Reads `path`, applies `overrides` in order and checks the result.
    ///
    /// # Errors
    /// One that names the file (or the override), line and key.
    pub fn load(path: &Path, overrides: &[String]) -> Result<Self> {
        let text = read_text(path)?;
        parse(&text, &path.display().to_string(), true)?;
        let mut table: toml::Table =
            text.parse().with_context(|| format!("{} is not TOML", path.display()))?;
        for text in overrides {
            let change = Override::parse(text)?;
            change.apply(&mut table)?;
            parse(&change.to_toml(), &format!("--set {text}"), false)?;
        }
        let names_tokenizer =
            table.get("evaluation").and_then(|section| section.get("tokenize")).is_some();
        let mut config: Self =
            table.try_into().with_context(|| format!("{} with its overrides", path.display()))?;
        if !names_tokenizer {
            config.evaluation.tokenize = usual_tokenizer(&config.data.target_language);
        }
        if config.name.is_empty() {
            config.name = stem(path);
        }
        config.validate().with_context(|| path.display().to_string())?;
        Ok(config)
    }

    /// Checks each section and what they require of each other.
    ///
    /// # Errors
    /// When a value or a combination of values cannot work.
    pub fn validate(&self) -> Result<()> {
        crate::checks::device::check_names(&self.device, &self.dtype)?;
        Task::Translation.validate(&self.data)?;
        self.model.validate(self.data.tokenizer.joint)?;
        self.training.check()?;
        self.decoding.validate()?;
        Ok(())
    }

    /// Checks that validations measure what early stopping watches; what is known before the first
    /// update must not end a training after hours.
    ///
    /// # Errors
    /// When they do not, with what to change.
    pub fn require_what_is_watched(&self) -> Result<()> {
        let watched = &self.training.early_stopping;
        if self.data.validation.is_empty() {
            if watched.patience > 0 {
                bail!(
                    "training.early_stopping.patience = {} needs a validation split: set data.validation, or a patience of 0",
                    watched.patience
                );
            }
        } else if matches!(watched.metric, Metric::Bleu | Metric::Chrf)
            && self.evaluation.validation_sentences == 0
        {
            bail!(
                "training.early_stopping.metric = \"{}\" is measured on translations: set evaluation.validation_sentences above 0, or watch \"loss\"",
                watched.metric
            );
        }
        Ok(())
    }

    /// How the text of this recipe is scored. Where data is lowercased so are the references, and a
    /// signature has to say it.
    pub fn scoring(&self) -> EvaluationConfig {
        EvaluationConfig {
            lowercase: self.evaluation.lowercase || self.data.lowercase,
            ..self.evaluation.clone()
        }
    }

    /// The whole configuration as TOML, every default written out.
    ///
    /// # Errors
    /// When a value cannot be written as TOML (an integer above 2^63).
    pub fn to_toml(&self) -> Result<String> {
        toml::to_string_pretty(self).context("the configuration cannot be written as TOML")
    }
}

/// File name without its extension.
fn stem(path: &Path) -> String {
    path.file_stem().map_or_else(|| "run".to_owned(), |stem| stem.to_string_lossy().into_owned())
}

fn read_text(path: &Path) -> Result<String> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let line = 1 + error.as_bytes()[..valid].iter().filter(|&&b| b == b'\n').count();
        anyhow!("{}:{line}: not valid UTF-8", path.display())
    })
}

/// Parses `text`, which came from `origin`; line numbers are given only where
/// `origin` is a file, an override being one line long.
fn parse(text: &str, origin: &str, is_file: bool) -> Result<RunConfig> {
    toml::from_str(text).map_err(|error| {
        let found = diagnose::diagnose(text, &error);
        match found.line {
            Some(line) if is_file => anyhow!("{origin}:{line}: {}", found.message),
            _ => anyhow!("{origin}: {}", found.message),
        }
    })
}
