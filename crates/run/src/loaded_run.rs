//! A trained run, ready to use: configuration, tokenizers, model with weights.

use std::path::PathBuf;

use anyhow::{Result, bail, ensure};
use taper_data::{Direction, TokenizerPair};
use taper_model::TranslationModel;
use taper_trainer::State;

use crate::config::RunConfig;

/// Type of the weights of matrix products when a model is used.
///
/// With this choice, all products use the type; embeddings, norms, attention and softmax are in
/// f32.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WeightType {
    /// Weights as they were trained.
    F32,
    /// Weights and activations rounded to bf16.
    Bf16,
    /// Weights, including token embeddings, rounded to int8 with a scale for each output, and
    /// activations with a scale for each row; on the CPU.
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
    /// checkpoint folder. `None`: average if it exists and is not older than last, else best, else
    /// last.
    pub checkpoint: Option<String>,
    /// Name of a device: auto, cpu, cuda, cuda:N or metal. `None`: the run's.
    pub device: Option<String>,
    /// Type of the weights of matrix products. `None`: int8 if the weights were saved in int8, else
    /// the run's dtype.
    pub weights: Option<WeightType>,
    /// Changed keys of the recipe, as `key=value`.
    pub overrides: Vec<String>,
    /// Language to translate from, for a run of several directions. `None`: the first language that
    /// is translated into `to`.
    pub from: Option<String>,
    /// Language to translate into. `None`: the only one.
    pub to: Option<String>,
    /// Whether a run of several directions can be loaded without a choice of direction if `to` is
    /// `None`. Its tokenizers then name no language, and each use has to choose one.
    pub every_direction: bool,
}

/// Trained run, loaded for commands that use a model.
#[derive(Debug)]
pub struct LoadedRun<M = TranslationModel> {
    /// Configuration of the run, without adapters, because the weights include them.
    pub config: RunConfig,
    /// Tokenizers of the run.
    pub tokenizers: TokenizerPair,
    /// Model with the chosen weights.
    pub model: M,
    /// Checkpoint of the weights.
    pub checkpoint: PathBuf,
    /// State recorded by the checkpoint.
    pub state: State,
    /// Whether decoding multiplies in int8.
    pub is_int8: bool,
}

impl<M> LoadedRun<M> {
    /// Refuses a run of several directions without a chosen one.
    ///
    /// # Errors
    /// When no language would be named in its rows.
    pub fn require_direction(&self) -> Result<()> {
        if self.config.data.is_multilingual() && !self.tokenizers.names_language() {
            self.config.data.choose_direction(None, None)?;
            bail!("the run has several directions of translation: choose one (from, to)");
        }
        Ok(())
    }

    /// Refuses to write a model of several directions for other programs.
    ///
    /// # Errors
    /// When a language is named in its rows.
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

    /// Name of the type of the weights of matrix products.
    #[must_use]
    pub fn weights(&self) -> &str {
        if self.is_int8 { WeightType::Int8.name() } else { &self.config.dtype }
    }
}

/// Recipe and tokenizers of a run for one of its directions: the recipe has the direction's
/// languages and the usual tokenizer of scores of the target language, and rows of tokens name this
/// language.
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
