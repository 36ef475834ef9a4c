//! A trained run, ready to be used: configuration, tokenizers, model with weights.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use taper_data::TokenizerPair;
use taper_model::{ModelConfig, Transformer};
use taper_trainer::{State, load_model, read_state};

use crate::checks::{device, use_threads};
use crate::config::{RunConfig, differences, is_fixed, trained_with};
use crate::folder::{RunFolder, quoted};
use crate::tasks::{TaskModel, build_model, require_task};

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

/// What commands that use a model work with.
#[derive(Debug)]
pub struct LoadedRun<M = Transformer> {
    /// The run's configuration.
    pub config: RunConfig,
    /// Its tokenizers.
    pub tokenizers: TokenizerPair,
    /// The model with the chosen weights.
    pub model: M,
    /// Where the weights came from.
    pub checkpoint: PathBuf,
    /// What the checkpoint recorded.
    pub state: State,
}

impl<M: TaskModel> LoadedRun<M> {
    /// Loads the run at `root` with the weights that `settings` name.
    ///
    /// # Errors
    /// When a file is missing or damaged, the tokenizer is not the checkpoint's, or the run is of
    /// another task.
    pub fn open(root: &Path, settings: &LoadSettings) -> Result<Self> {
        taper_ops::allocator::return_freed_pages();
        let folder = RunFolder::open(root)?;
        let mut config = folder.load_config(&settings.overrides)?;
        require_task(&config, M::TASK).with_context(|| root.display().to_string())?;
        use_threads(config.threads)?;
        if !TokenizerPair::exists(root) {
            bail!("{}: the run has no tokenizer.json", root.display());
        }
        let tokenizers = TokenizerPair::load(root)?;
        let checkpoint = match &settings.checkpoint {
            Some(name) => {
                folder.checkpoint(Some(name)).with_context(|| format!("--checkpoint {name}"))?
            }
            None => folder.checkpoint(None)?,
        };
        config.model = model_of(&folder, &config, &checkpoint)?;
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
    pub fn load_member(&self, path: &Path) -> Result<M> {
        let (folder, checkpoint) = RunFolder::of_weights(path)
            .with_context(|| format!("--ensemble {}", path.display()))?;
        let tokenizers = TokenizerPair::load(folder.root())?;
        if tokenizers.hash() != self.tokenizers.hash() {
            bail!(
                "--ensemble {}: its tokenizer is another, so its tokens do not mean the same",
                path.display()
            );
        }
        // All members compute as this run does, on one device and with products of one type.
        let load = || -> Result<M> {
            let mut config = folder.load_config(&[])?;
            config.model = model_of(&folder, &config, &checkpoint)?;
            config.dtype.clone_from(&self.config.dtype);
            let model = build_model(&config, &tokenizers, self.model.parameters().device(), None)?;
            load_model(&checkpoint, &model, &tokenizers.hash())?;
            Ok(model)
        };
        load().with_context(|| format!("--ensemble {}", path.display()))
    }
}

/// The shape of the model whose weights `checkpoint` has, for a command that loads them under
/// `config`: the run's, with the overrides of the command.
///
/// # Errors
/// When config.toml is not what the run was trained with, or an override changes what it was.
fn model_of(folder: &RunFolder, config: &RunConfig, checkpoint: &Path) -> Result<ModelConfig> {
    let written = folder.load_config(&[])?;
    let trained = trained_with(&read_state(checkpoint)?, &written)?;
    if let Some(trained) = &trained {
        require_unedited(folder, &written, trained)?;
    }
    let overridden: Vec<String> = differences(&written, config)?
        .into_iter()
        .filter(|change| change.starts_with("model.") || is_fixed(change))
        .collect();
    if !overridden.is_empty() {
        bail!(
            "--set would change what the weights were trained with: {}; leave it out, or train a run with it",
            overridden.join("; ")
        );
    }
    Ok(trained.unwrap_or(written).model)
}

/// Refuses a config.toml, `written`, that somebody has changed in what shaped the weights, which
/// are of a checkpoint that was `trained` with another.
///
/// # Errors
/// When they differ, with what differs; unless the run has gone on with the change, so that it is
/// its own, also for weights from before.
pub fn require_unedited(
    folder: &RunFolder,
    written: &RunConfig,
    trained: &RunConfig,
) -> Result<()> {
    let changes = differences(trained, written)?;
    let is_accepted = || -> Result<bool> {
        let Some(last) = folder.last_state()? else { return Ok(false) };
        Ok(match trained_with(&last, written)? {
            Some(run) => differences(&run, written)?.is_empty(),
            None => false,
        })
    };
    if changes.is_empty() || is_accepted().unwrap_or(false) {
        return Ok(());
    }
    bail!(
        "{} is not what the weights were trained with: {}; put it back, or train on with the change: taper resume {} --accept-changes",
        folder.config().display(),
        changes.join("; "),
        quoted(folder.root())
    )
}
