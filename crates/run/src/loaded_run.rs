//! A trained run, ready to use: configuration, tokenizers, model with weights.

use std::path::PathBuf;

use anyhow::{Result, bail, ensure};
use taper_data::{Direction, TokenizerPair};
use taper_model::TranslationModel;
use taper_trainer::State;

use crate::config::RunConfig;

/// Type of the weights in matrix products when a model is used.
///
/// All matrix products are computed in this type; embeddings, norms, attention and softmax are in
/// f32.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WeightType {
    /// Weights as they were trained.
    F32,
    /// Weights and activations rounded to bf16.
    Bf16,
    /// Weights rounded to int8 with a scale for each output, including token embeddings, and
    /// activations with a scale for each row. Only the CPU supports it.
    Int8,
}

impl WeightType {
    /// Name in settings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::Int8 => "int8",
        }
    }
}

/// Choice of weights and device, and changed keys of the recipe, for loading a run.
#[derive(Debug, Clone, Default)]
pub struct LoadSettings {
    /// Name of a checkpoint: best, last, average, a name such as step-00001000, or the path of a
    /// checkpoint folder. `None` for the average if it exists and is not older than the last one,
    /// or else for the best, or else for the last.
    pub checkpoint: Option<String>,
    /// Name of a device: auto, cpu, cuda, cuda:N or metal; `None` for the run's device.
    pub device: Option<String>,
    /// Type of the weights in matrix products; `None` for int8 if the weights were saved in int8,
    /// and otherwise for the run's dtype.
    pub weights: Option<WeightType>,
    /// Changed keys of the recipe, as `key=value`.
    pub overrides: Vec<String>,
    /// Source language, for a run of several directions; `None` for the first language from which
    /// the run translates into `to`.
    pub from: Option<String>,
    /// Target language, for a run of several directions; `None` if the run has only one.
    pub to: Option<String>,
    /// True if a run of several directions may be loaded without a choice of direction. The
    /// tokenizers then add no token of a language, and a direction must be chosen for each use.
    pub every_direction: bool,
}

/// Trained run, loaded for commands that use a model.
#[derive(Debug)]
pub struct LoadedRun<M = TranslationModel> {
    /// Configuration of the run without adapters, which were added to the weights when these were
    /// loaded.
    pub config: RunConfig,
    /// Tokenizers of the run.
    pub tokenizers: TokenizerPair,
    /// Model with the chosen weights.
    pub model: M,
    /// Checkpoint of the weights.
    pub checkpoint: PathBuf,
    /// State that the checkpoint records.
    pub state: State,
    /// True if decoding multiplies in int8.
    pub is_int8: bool,
}

impl<M> LoadedRun<M> {
    /// Refuses a run of several directions for which no direction has been chosen.
    ///
    /// # Errors
    /// When rows would not have the token of a language.
    pub fn require_direction(&self) -> Result<()> {
        if self.config.data.is_multilingual() && !self.tokenizers.names_language() {
            self.config.data.choose_direction(None, None)?;
            bail!("the run has several directions of translation: choose one (from, to)");
        }
        Ok(())
    }

    /// Refuses to export a model of several directions for other programs.
    ///
    /// # Errors
    /// When rows have the token of a language, which other programs would not add.
    pub(crate) fn require_one_direction(&self) -> Result<()> {
        ensure!(
            !self.config.data.is_multilingual() && !self.tokenizers.names_language(),
            "the run has several directions of translation: its rows name a language by a \
                 token of their own, which other programs would leave out; export runs of one \
                 direction"
        );
        Ok(())
    }

    /// Recipe and tokenizers of one of the run's directions.
    ///
    /// # Errors
    /// When the vocabulary lacks the token of the target language.
    pub fn in_direction(&self, direction: &Direction) -> Result<(RunConfig, TokenizerPair)> {
        in_direction(&self.config, &self.tokenizers, direction)
    }

    /// Name of the type of the weights in matrix products.
    #[must_use]
    pub fn weights(&self) -> &str {
        if self.is_int8 { WeightType::Int8.name() } else { &self.config.dtype }
    }
}

/// Recipe and tokenizers of a run for one of its directions. The recipe has the direction's
/// languages, and the usual tokenizer of BLEU for the target language. The tokenizers add the token
/// of the target language to rows.
///
/// # Errors
/// When the vocabulary lacks the token of the target language.
pub(crate) fn in_direction(
    config: &RunConfig,
    tokenizers: &TokenizerPair,
    direction: &Direction,
) -> Result<(RunConfig, TokenizerPair)> {
    Ok((config.in_direction(direction), tokenizers.toward(&config.data, direction)?))
}
