//! A folder of the library Transformers as a run.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use candle_core::{DType, Device, Tensor};
use serde_json::Value;
use sha2::{Digest, Sha256};
use taper_data::{Corpora, Task, Tokenizer, TokenizerKind, TokenizerPair, read_regular};
use taper_model::{LanguageModel, Model, ModelConfig};
use taper_trainer::{Checkpoints, Identity, Parent, State};

use super::gpt2::{Gpt2Config, bare, counterpart, is_mask};
use super::{CONFIG, TOKENIZER, WEIGHTS, vit};
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

/// A model of a folder, before it is a run.
pub(super) struct Read<M> {
    pub(super) config: RunConfig,
    pub(super) tokenizers: TokenizerPair,
    pub(super) model: M,
    /// The hash of the file of its weights.
    pub(super) sha256: String,
}

/// Makes a run in `folder` of the GPT-2 or the ViT in the folder `source`: its weights are the
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
    let name = folder.root().file_name().map(|name| name.to_string_lossy().into_owned());
    match keys["model_type"].as_str() {
        Some(kind @ "gpt2") => {
            let name = name.unwrap_or_else(|| kind.to_owned());
            save(source, folder, read_gpt2(source, name, keys)?, observer)
        }
        Some(kind @ "vit") => {
            let name = name.unwrap_or_else(|| kind.to_owned());
            save(source, folder, vit::read(source, name, keys)?, observer)
        }
        _ => bail!(
            "{}: model_type is {}, and only \"gpt2\" and \"vit\" can be imported",
            path.display(),
            keys["model_type"]
        ),
    }
}

/// The GPT-2 of a folder, as a run called `name`.
fn read_gpt2(source: &Path, name: String, keys: Value) -> Result<Read<LanguageModel>> {
    let what = || format!("{}: not the config.json of a GPT-2", source.join(CONFIG).display());
    let theirs: Gpt2Config = serde_json::from_value(keys).with_context(what)?;
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
    let config = run_config(name, &theirs, model);
    config.validate().with_context(|| source.join(CONFIG).display().to_string())?;
    memory::require_weights(&config, (theirs.vocab_size, theirs.vocab_size), &Device::Cpu)?;
    let weights = source.join(WEIGHTS);
    let model = LanguageModel::blank(&config.model, theirs.vocab_size, &Device::Cpu, DType::F32)?;
    let sha256 = fill(&model, &weights).with_context(|| weights.display().to_string())?;
    Ok(Read { config, tokenizers: TokenizerPair::joint(tokenizer), model, sha256 })
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

/// The recipe of the run: documents end with what the tokenizer has for it, and blocks are as long
/// as positions reach.
fn run_config(name: String, theirs: &Gpt2Config, model: ModelConfig) -> RunConfig {
    let mut config = RunConfig { name, task: Task::LanguageModel, model, ..RunConfig::default() };
    config.dtype = "f32".to_owned();
    config.data.validation = Corpora::default();
    config.data.test = Corpora::default();
    config.data.tokenizer.kind = TokenizerKind::Bytes;
    config.data.tokenizer.vocabulary_size = theirs.vocab_size;
    config.data.text.block_length = theirs.n_positions;
    config.training.label_smoothing = 0.0;
    config
}

/// The tensors of a file by the names that `bare` makes of theirs, and the hash of the file.
pub(super) fn read_tensors(
    path: &Path,
    bare: fn(&str) -> &str,
) -> Result<(HashMap<String, Tensor>, String)> {
    let bytes = fs::read(path).context("cannot read it")?;
    let sha256 = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    let tensors = candle_core::safetensors::load_buffer(&bytes, &Device::Cpu)
        .context("not a safetensors file")?
        .into_iter()
        .map(|(name, tensor)| (bare(&name).to_owned(), tensor))
        .collect();
    Ok((tensors, sha256))
}

/// Takes the tensor `name`, which has to be of the shape `expected`, in f32.
pub(super) fn take(
    tensors: &mut HashMap<String, Tensor>,
    name: &str,
    bare: fn(&str) -> &str,
    expected: &[usize],
) -> Result<Tensor> {
    let Some(tensor) = tensors.remove(bare(name)) else {
        bail!("has no tensor {name}, which config.json asks for");
    };
    if tensor.dims() != expected {
        bail!("tensor {name} has shape {:?}, but config.json asks for {expected:?}", tensor.dims());
    }
    if !tensor.dtype().is_float() {
        bail!("tensor {name} has type {:?}, which is no floating point", tensor.dtype());
    }
    Ok(tensor.to_dtype(DType::F32)?)
}

/// Sets the parameters of `model` from the file `path`, and gives the hash of the file.
fn fill(model: &LanguageModel, path: &Path) -> Result<String> {
    let (mut tensors, sha256) = read_tensors(path, bare)?;
    for parameter in model.parameters().parameters() {
        let Some((theirs, transposed)) = counterpart(parameter.name()) else {
            bail!("the parameter {} has no counterpart", parameter.name());
        };
        let mut expected = parameter.shape().to_vec();
        if transposed {
            expected.reverse();
        }
        let tensor = take(&mut tensors, &theirs, bare, &expected)?;
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
