//! A folder of the library Transformers as a run.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use taper_data::{Corpora, Task, TokenizerPair, read_regular};
use taper_model::{Model, ModelConfig};
use taper_trainer::{Checkpoints, Identity, Parent, State};

use super::{CONFIG, bert, gpt2, vit};
use crate::config::{RunConfig, recipe};
use crate::event::RunObserver;
use crate::folder::{RunFolder, RunLock};

/// More bytes than any `config.json` has.
const MOST_BYTES: u64 = 1 << 24;

/// What was imported.
#[derive(Debug, Clone)]
pub struct Imported {
    /// The run's configuration.
    pub config: RunConfig,
    /// Trained scalars.
    pub parameters: u64,
    /// Tokens of the vocabulary.
    pub vocabulary: usize,
}

/// A model of a folder, before it is a run.
pub(super) struct Read<M> {
    pub(super) config: RunConfig,
    pub(super) tokenizers: TokenizerPair,
    pub(super) model: M,
    /// The hash of the file of its weights.
    pub(super) sha256: String,
}

/// Makes a run in `folder` of the GPT-2, BERT or ViT in the folder `source`: its weights are the
/// checkpoint of update 0, with which other runs may begin.
///
/// # Errors
/// When a file is missing or damaged, the model is not one of ours, the tensors are not those of
/// `config.json`, or the folder is there already. Nothing is left of the run then.
pub fn import(
    source: &Path,
    folder: &RunFolder,
    observer: &mut dyn RunObserver,
) -> Result<Imported> {
    if !source.is_dir() {
        bail!("{}: no such folder", source.display());
    }
    let path = source.join(CONFIG);
    let keys = read_keys(&path)?;
    let kind = keys["model_type"].as_str().unwrap_or_default().to_owned();
    let name = folder.root().file_name().map(|name| name.to_string_lossy().into_owned());
    let name = name.unwrap_or_else(|| kind.clone());
    match kind.as_str() {
        "gpt2" => save(source, folder, gpt2::read(source, name, keys)?, observer),
        "bert" if bert::is_classifier(&keys) => {
            save(source, folder, bert::read_classifier(source, name, keys)?, observer)
        }
        "bert" if bert::is_span_extractor(&keys) => {
            save(source, folder, bert::read_span_extractor(source, name, keys)?, observer)
        }
        "bert" => save(source, folder, bert::read(source, name, keys)?, observer),
        "vit" => save(source, folder, vit::read(source, name, keys)?, observer),
        _ => bail!(
            "{}: model_type is {}, and only \"gpt2\", \"bert\" and \"vit\" can be imported",
            path.display(),
            keys["model_type"]
        ),
    }
}

/// The recipe of a run called `name` that has been given its weights, without data yet.
pub(super) fn run_config(name: String, task: Task, model: ModelConfig) -> RunConfig {
    let mut config = RunConfig { name, task, model, ..RunConfig::default() };
    config.dtype = "f32".to_owned();
    config.data.validation = Corpora::default();
    config.data.test = Corpora::default();
    config.training.label_smoothing = 0.0;
    config
}

/// Makes the run of what was read.
fn save<M: Model>(
    source: &Path,
    folder: &RunFolder,
    read: Read<M>,
    observer: &mut dyn RunObserver,
) -> Result<Imported> {
    let Read { config, tokenizers, model, sha256 } = read;
    if folder.exists() {
        bail!("{} exists already and is left as it is", folder.root().display());
    }
    let found = folder.root().is_dir();
    fs::create_dir_all(folder.root())
        .with_context(|| format!("cannot make {}", folder.root().display()))?;
    let _lock = RunLock::acquire(folder.root(), observer)?;
    let write = || -> Result<()> {
        tokenizers.save(folder.root())?;
        let identity = Identity {
            tokenizer_hash: tokenizers.hash(),
            recipe: recipe(&config)?,
            ..Identity::default()
        };
        let path = source.canonicalize().unwrap_or_else(|_| source.to_owned());
        let state = State {
            interim: false,
            parent: Some(Parent { path, step: 0, sha256: sha256.clone() }),
            ..State::new(config.training.seed, identity)
        };
        Checkpoints::new(&folder.checkpoints()).save_weights(&state, &model)?;
        // Only with this is it a run.
        folder.save_config(&config)
    };
    if let Err(error) = write() {
        // What failed is reported; a part of a run would only take up room.
        let _ = folder.remove(found);
        return Err(error);
    }
    let parameters = model.parameters().len() as u64;
    Ok(Imported { config, parameters, vocabulary: tokenizers.vocabulary_sizes().1 })
}

/// The keys of a JSON file.
pub(super) fn read_keys(path: &Path) -> Result<Value> {
    let bytes = read_regular(path, MOST_BYTES)
        .with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_slice(&bytes).with_context(|| format!("{}: not JSON", path.display()))
}
