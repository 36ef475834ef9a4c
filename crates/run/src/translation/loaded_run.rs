//! A trained run, ready to be used: configuration, tokenizers, model with weights.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use candle_core::Device;
use taper_data::TokenizerPair;
use taper_model::Transformer;
use taper_trainer::{State, load_model};

use crate::checks::{device, memory, use_threads};
use crate::config::RunConfig;
use crate::folder::RunFolder;

/// Which weights of a run to use, where to compute, and what to change of its recipe.
#[derive(Debug, Clone, Default)]
pub struct LoadSettings {
    /// best, last, average, a name such as step-00001000, or the path of a checkpoint folder; none:
    /// average if there and not older than last, else best, else last.
    pub checkpoint: Option<String>,
    /// auto, cpu, cuda, cuda:N or metal; none: the run's.
    pub device: Option<String>,
    /// Keys of the recipe with other values, as `key=value`.
    pub overrides: Vec<String>,
}

/// What `translate`, `evaluate` and `score` work with.
#[derive(Debug)]
pub struct LoadedRun {
    /// The run's configuration.
    pub config: RunConfig,
    /// Its tokenizers.
    pub tokenizers: TokenizerPair,
    /// The model with the chosen weights.
    pub model: Transformer,
    /// Where the weights came from.
    pub checkpoint: PathBuf,
    /// What the checkpoint recorded.
    pub state: State,
}

impl LoadedRun {
    /// Loads the run at `root` with the weights that `settings` name.
    ///
    /// # Errors
    /// When a file is missing or damaged, or the tokenizer is not the
    /// checkpoint's.
    pub fn open(root: &Path, settings: &LoadSettings) -> Result<Self> {
        taper_ops::allocator::return_freed_pages();
        let folder = RunFolder::open(root)?;
        let mut config = folder.load_config(&settings.overrides)?;
        use_threads(config.threads)?;
        if !TokenizerPair::exists(root) {
            bail!("{}: the run has no tokenizer.json", root.display());
        }
        let tokenizers = TokenizerPair::load(root)?;
        let checkpoint = folder.checkpoint(settings.checkpoint.as_deref())?;
        if let Some(device) = &settings.device {
            config.device.clone_from(device);
        }
        let model = build_model(&config, &tokenizers, &device::open(&config.device)?, None)?;
        let state = load_model(&checkpoint, &model, &tokenizers.hash())?;
        Ok(Self { config, tokenizers, model, checkpoint, state })
    }

    /// Another model to decide together with this run's: the run at `path` with its default
    /// weights, or the checkpoint at `path` of a run.
    ///
    /// # Errors
    /// When it cannot be loaded, or its tokenizer is not this run's.
    pub fn load_member(&self, path: &Path) -> Result<Transformer> {
        let around = RunFolder::around(path);
        let is_checkpoint = around.is_some();
        let folder = match around {
            Some(folder) => folder,
            None => {
                RunFolder::open(path).with_context(|| format!("--ensemble {}", path.display()))?
            }
        };
        let tokenizers = TokenizerPair::load(folder.root())?;
        if tokenizers.hash() != self.tokenizers.hash() {
            bail!(
                "--ensemble {}: its tokenizer is another, so its tokens do not mean the same",
                path.display()
            );
        }
        // All members compute as this run does, on one device and with products of one type.
        let config = RunConfig { dtype: self.config.dtype.clone(), ..folder.load_config(&[])? };
        let load = || -> Result<Transformer> {
            let model = build_model(&config, &tokenizers, self.model.parameters().device(), None)?;
            let checkpoint =
                if is_checkpoint { path.to_owned() } else { folder.checkpoint(None)? };
            load_model(&checkpoint, &model, &tokenizers.hash())?;
            Ok(model)
        };
        load().with_context(|| format!("--ensemble {}", path.display()))
    }
}

/// A model of `config` on `device`, with parameters drawn from `seed`, or without one to be loaded.
///
/// # Errors
/// When the device cannot compute in the type that `config` names, or the model cannot be built.
pub(crate) fn build_model(
    config: &RunConfig,
    tokenizers: &TokenizerPair,
    device: &Device,
    seed: Option<u64>,
) -> Result<Transformer> {
    let dtype = device::dtype(&config.dtype, device)?;
    let (source, target) =
        (tokenizers.source().vocabulary_size(), tokenizers.target().vocabulary_size());
    memory::require_weights(config, source, target)?;
    match seed {
        Some(seed) => Transformer::new(&config.model, source, target, seed, device, dtype),
        None => Transformer::blank(&config.model, source, target, device, dtype),
    }
    .context("cannot build the model")
}
