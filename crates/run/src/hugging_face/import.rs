//! A folder of GPT-2 as a run.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use candle_core::{DType, Device, Tensor};
use sha2::{Digest, Sha256};
use taper_data::{Corpora, Task, Tokenizer, TokenizerKind, TokenizerPair, read_regular};
use taper_model::{LanguageModel, Model};
use taper_trainer::{Checkpoints, Identity, Parent, State};

use super::gpt2::{Gpt2Config, bare, counterpart, is_mask};
use super::{CONFIG, TOKENIZER, WEIGHTS};
use crate::checks::memory;
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

/// Makes a run in `folder` of the GPT-2 in the folder `source`: its weights are the checkpoint of
/// update 0, with which other runs may begin.
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
    let theirs = read_config(&source.join(CONFIG))?;
    let model = theirs.model().with_context(|| source.join(CONFIG).display().to_string())?;
    let path = source.join(TOKENIZER);
    if !path.exists() {
        bail!(
            "{}: no such file; save a fast tokenizer there, which Transformers can",
            path.display()
        );
    }
    let tokenizer = Tokenizer::load(&path)?;
    if tokenizer.vocabulary_size() != theirs.vocab_size {
        bail!(
            "{}: vocab_size is {}, but {TOKENIZER} has {} tokens",
            source.join(CONFIG).display(),
            theirs.vocab_size,
            tokenizer.vocabulary_size()
        );
    }
    let config = run_config(folder, &theirs, model);
    config.validate().with_context(|| source.join(CONFIG).display().to_string())?;
    memory::require_weights(&config, (theirs.vocab_size, theirs.vocab_size), &Device::Cpu)?;
    let weights = source.join(WEIGHTS);
    let model = LanguageModel::blank(&config.model, theirs.vocab_size, &Device::Cpu, DType::F32)?;
    let sha256 = fill(&model, &weights).with_context(|| weights.display().to_string())?;

    if folder.exists() {
        bail!("{} exists already and is left as it is", folder.root().display());
    }
    let found = folder.root().is_dir();
    fs::create_dir_all(folder.root())
        .with_context(|| format!("cannot make {}", folder.root().display()))?;
    let _lock = RunLock::acquire(folder.root(), observer)?;
    let write = || -> Result<()> {
        let tokenizers = TokenizerPair::joint(tokenizer.clone());
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
    Ok(Imported { config, parameters, vocabulary: theirs.vocab_size })
}

fn read_config(path: &Path) -> Result<Gpt2Config> {
    let bytes = read_regular(path, MOST_BYTES)
        .with_context(|| format!("cannot read {}", path.display()))?;
    let what = || format!("{}: not the config.json of a GPT-2", path.display());
    let keys: serde_json::Value = serde_json::from_slice(&bytes).with_context(what)?;
    if keys["model_type"] != "gpt2" {
        bail!(
            "{}: model_type is {}, and only \"gpt2\" can be imported",
            path.display(),
            keys["model_type"]
        );
    }
    serde_json::from_value(keys).with_context(what)
}

/// The recipe of the run: documents end with what the tokenizer has for it, and blocks are as long
/// as positions reach.
fn run_config(
    folder: &RunFolder,
    theirs: &Gpt2Config,
    model: taper_model::ModelConfig,
) -> RunConfig {
    let mut config = RunConfig { task: Task::LanguageModel, model, ..RunConfig::default() };
    config.name = folder
        .root()
        .file_name()
        .map_or_else(|| "gpt2".to_owned(), |name| name.to_string_lossy().into_owned());
    config.dtype = "f32".to_owned();
    config.data.validation = Corpora::default();
    config.data.test = Corpora::default();
    config.data.tokenizer.kind = TokenizerKind::Bytes;
    config.data.tokenizer.vocabulary_size = theirs.vocab_size;
    config.data.text.block_length = theirs.n_positions;
    config.training.label_smoothing = 0.0;
    config
}

/// Sets the parameters of `model` from the file `path`, and gives the hash of the file.
fn fill(model: &LanguageModel, path: &Path) -> Result<String> {
    let bytes = fs::read(path).context("cannot read it")?;
    let sha256 = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    let mut tensors: HashMap<String, Tensor> =
        candle_core::safetensors::load_buffer(&bytes, &Device::Cpu)
            .context("not a safetensors file")?
            .into_iter()
            .map(|(name, tensor)| (bare(&name).to_owned(), tensor))
            .collect();
    drop(bytes);
    for parameter in model.parameters().parameters() {
        let Some((theirs, transposed)) = counterpart(parameter.name()) else {
            bail!("the parameter {} has no counterpart", parameter.name());
        };
        let Some(tensor) = tensors.remove(bare(&theirs)) else {
            bail!("has no tensor {theirs}, which config.json asks for");
        };
        let mut expected = parameter.shape().to_vec();
        if transposed {
            expected.reverse();
        }
        if tensor.dims() != expected {
            bail!(
                "tensor {theirs} has shape {:?}, but config.json asks for {expected:?}",
                tensor.dims()
            );
        }
        if !tensor.dtype().is_float() {
            bail!("tensor {theirs} has type {:?}, which is no floating point", tensor.dtype());
        }
        let tensor = tensor.to_dtype(DType::F32)?;
        let tensor = if transposed { tensor.t()?.contiguous()? } else { tensor };
        parameter.var().set(&tensor)?;
    }
    tensors.retain(|name, _| !is_mask(name));
    // Some files have the tied projection a second time.
    if let (Some(head), Some(table)) =
        (tensors.remove("lm_head.weight"), model.parameters().get("embedding.weight"))
    {
        let differ = || -> Result<bool> {
            let values = |tensor: &Tensor| -> Result<Vec<f32>> {
                Ok(tensor.to_dtype(DType::F32)?.flatten_all()?.to_vec1()?)
            };
            Ok(values(&head)? != values(table.var().as_tensor())?)
        };
        if differ()? {
            bail!("lm_head.weight is not the embedding, but tie_word_embeddings is true");
        }
    }
    if let Some(name) = tensors.keys().min() {
        bail!("has a tensor {name}, which a GPT-2 of this config.json does not have");
    }
    Ok(sha256)
}
