//! A run as a folder of the library Transformers.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use candle_core::Tensor;
use safetensors::Dtype;
use safetensors::tensor::View;
use serde_json::Value;
use taper_model::{LanguageModel, Model};

use super::gpt2::{Gpt2Config, counterpart};
use super::{CONFIG, TOKENIZER, WEIGHTS};
use crate::LoadedRun;
use crate::folder::files::write_atomically;

/// Writes the language model of `run` into `folder` as Transformers' `GPT2LMHeadModel`, which must
/// be no folder yet or an empty one. `config.json` comes last.
///
/// # Errors
/// When a GPT-2 cannot be such a model, or the folder cannot be written.
pub fn export(run: &LoadedRun<LanguageModel>, folder: &Path) -> Result<()> {
    let tokenizer = run.tokenizers.target();
    let config = Gpt2Config::of(run.model.config(), run.model.vocabulary(), tokenizer.end())
        .context("cannot be exported as a GPT-2")?;
    write(folder, &tensors(&run.model)?, &serde_json::to_value(&config)?, |folder| {
        Ok(tokenizer.save(&folder.join(TOKENIZER))?)
    })
}

/// Writes weights, what `others` writes, and `config.json` into a folder that is not there yet or is
/// empty.
pub(super) fn write(
    folder: &Path,
    tensors: &[Named],
    config: &Value,
    others: impl FnOnce(&Path) -> Result<()>,
) -> Result<()> {
    if folder.exists() && fs::read_dir(folder).map_or(true, |mut entries| entries.next().is_some())
    {
        bail!("{} exists already and is left as it is", folder.display());
    }
    let views = tensors.iter().map(|tensor| (tensor.name.as_str(), tensor));
    let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    let weights = safetensors::serialize(views, Some(metadata))
        .context("the weights cannot be written as safetensors")?;
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    write_atomically(&folder.join(WEIGHTS), &weights)?;
    others(folder)?;
    write_json(&folder.join(CONFIG), config)
}

/// Writes a file of JSON.
pub(super) fn write_json(path: &Path, value: &Value) -> Result<()> {
    let mut json = serde_json::to_vec_pretty(value)?;
    json.push(b'\n');
    write_atomically(path, &json)
}

/// A tensor under its name in Transformers.
pub(super) struct Named {
    pub(super) name: String,
    pub(super) shape: Vec<usize>,
    pub(super) values: Vec<f32>,
}

impl View for &Named {
    fn dtype(&self) -> Dtype {
        Dtype::F32
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        self.values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>().into()
    }

    fn data_len(&self) -> usize {
        size_of_val(&self.values[..])
    }
}

fn tensors(model: &LanguageModel) -> Result<Vec<Named>> {
    let mut all = Vec::new();
    for parameter in model.parameters().parameters() {
        let Some((name, transposed)) = counterpart(parameter.name()) else {
            bail!("the parameter {} has no counterpart in a GPT-2", parameter.name());
        };
        let value: Tensor = parameter.var().as_detached_tensor();
        let value = if transposed { value.t()?.contiguous()? } else { value };
        let shape = value.dims().to_vec();
        all.push(Named { name, shape, values: value.flatten_all()?.to_vec1()? });
    }
    Ok(all)
}
