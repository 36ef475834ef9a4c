//! A folder as the library Transformers has it, written.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::Serialize;
use serde_json::{Map, Value};

use super::weights::Named;
use super::{CONFIG, WEIGHTS};
use crate::folder::files::write_atomically;

/// Writes weights, what `others` writes, and at last `config.json`, of a configuration and further
/// keys, into a folder that is not there yet or is empty.
///
/// # Errors
/// When there is something in it, or it cannot be written.
pub(super) fn write(
    folder: &Path,
    tensors: &[Named],
    (config, more): (&impl Serialize, Map<String, Value>),
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
    let mut config = serde_json::to_value(config)?;
    if let Value::Object(keys) = &mut config {
        keys.extend(more);
    }
    write_json(&folder.join(CONFIG), &config)
}

/// Writes a file of JSON, its keys in order.
pub(super) fn write_json(path: &Path, value: &impl Serialize) -> Result<()> {
    let mut json = serde_json::to_vec_pretty(&serde_json::to_value(value)?)?;
    json.push(b'\n');
    write_atomically(path, &json)
}
