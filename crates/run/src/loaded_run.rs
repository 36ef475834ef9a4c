//! A run (the folder of a trained model) in memory: configuration, tokenizers, and model with
//! weights.

use std::path::PathBuf;

use anyhow::{Result, bail, ensure};
use taper_data::{Corpora, Direction, TokenizerPair};
use taper_model::TranslationModel;
use taper_trainer::State;

use crate::config::RunConfig;
use crate::shortlist::RunShortlist;

/// Type of the weights in matrix products when a model is used.
///
/// All products with weight matrices are computed in this type. Embeddings, norms, attention and
/// softmax are computed in f32.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WeightType {
    /// Weights in f32.
    F32,
    /// Weights and activations rounded to bf16.
    Bf16,
    /// Weights and activations rounded to int8. Weights, including those of token embeddings, have
    /// a scale for each output dimension, and activations have a scale for each token. Only the CPU
    /// supports this type.
    Int8,
}

impl WeightType {
    /// Name of the type in settings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::Int8 => "int8",
        }
    }
}

/// Settings for loading a run: its weights, the device, and changes to its recipe (configuration).
#[derive(Debug, Clone, Default)]
pub struct LoadSettings {
    /// Name of a checkpoint: best, last, average, a name such as step-00001000, or the path of a
    /// checkpoint folder. `None` for the average of checkpoints if it exists and is not older than
    /// the last checkpoint; otherwise for the best one, or else the last.
    pub checkpoint: Option<String>,
    /// Name of a device: auto, cpu, cuda, cuda:N or metal; `None` for the device in the recipe.
    pub device: Option<String>,
    /// Type of the weights in matrix products; `None` for int8 if the weights were saved in int8,
    /// and otherwise for the `dtype` of the recipe.
    pub weights: Option<WeightType>,
    /// Changed keys of the recipe, as `key=value`.
    pub overrides: Vec<String>,
    /// Source language, for a run that translates in several directions (pairs of languages);
    /// `None` for the first language from which the run translates into `to`.
    pub from: Option<String>,
    /// Target language, for a run of several directions; `None` if the run has only one direction.
    pub to: Option<String>,
    /// Whether a run of several directions may be loaded without choosing a direction. The
    /// tokenizers of the loaded run then do not add the token of a language, and a direction has to
    /// be chosen for each use.
    pub every_direction: bool,
    /// Whether the model is only used for decoding: its weights are then kept only in the order in
    /// which decoding reads them, which halves their memory. Scoring, attention maps and other
    /// passes over such a model return an error.
    pub only_decodes: bool,
}

/// Trained run, loaded for commands that use a model.
#[derive(Debug)]
pub struct LoadedRun<M = TranslationModel> {
    /// Configuration of the run. It has no LoRA adapters, because they were added to the weights on
    /// loading.
    pub config: RunConfig,
    /// Tokenizers of the run.
    pub tokenizers: TokenizerPair,
    /// Model with the chosen weights.
    pub model: M,
    /// Path of the checkpoint from which the weights were loaded.
    pub checkpoint: PathBuf,
    /// State of the training that is stored in the checkpoint.
    pub state: State,
    /// Whether products with weights are computed in int8.
    pub is_int8: bool,
    /// Shortlist of the run, for searches that use one.
    pub shortlist: RunShortlist,
}

impl<M> LoadedRun<M> {
    /// Checks that a direction of translation has been chosen, which a run needs if it has several.
    ///
    /// # Errors
    /// If the run translates in several directions and none has been chosen. Without a choice,
    /// sentences would lack the token that names the target language.
    pub fn require_direction(&self) -> Result<()> {
        if self.config.data.is_multilingual() && !self.tokenizers.names_language() {
            self.config.data.choose_direction(None, None)?;
            bail!("the run has several directions of translation: choose one (from, to)");
        }
        Ok(())
    }

    /// Corpora of the split `name`. For a run that translates in several directions, only the
    /// corpora in the chosen direction.
    ///
    /// # Errors
    /// If the run translates in several directions, and none has been chosen or the split has no
    /// text in the chosen one.
    pub fn corpora(&self, name: &str) -> Result<Corpora> {
        self.require_direction()?;
        let data = &self.config.data;
        Ok(data.in_own_direction(data.split(name))?)
    }

    /// Checks that the run has only one direction of translation, so that it can be exported for
    /// other programs.
    ///
    /// # Errors
    /// If the run translates in several directions. Its sentences contain a token that names a
    /// language, and other programs would not add this token.
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
    /// If the vocabulary lacks the token of the target language.
    pub fn in_direction(&self, direction: &Direction) -> Result<(RunConfig, TokenizerPair)> {
        in_direction(&self.config, &self.tokenizers, direction)
    }

    /// Name of the type in which products with weights are computed.
    #[must_use]
    pub fn weights(&self) -> &str {
        if self.is_int8 { WeightType::Int8.name() } else { &self.config.dtype }
    }
}

/// Recipe and tokenizers of a run for one of its directions. The recipe has the languages of the
/// direction. If its tokenizer for BLEU is the default for the target language, it becomes the
/// default for the new target language. The tokenizers add the token of the target language to
/// sentences.
///
/// # Errors
/// If the vocabulary lacks the token of the target language.
pub(crate) fn in_direction(
    config: &RunConfig,
    tokenizers: &TokenizerPair,
    direction: &Direction,
) -> Result<(RunConfig, TokenizerPair)> {
    Ok((config.in_direction(direction), tokenizers.toward(&config.data, direction)?))
}
