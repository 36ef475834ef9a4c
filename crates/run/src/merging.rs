//! Merging of LoRA adapters into the weights that they change. The result is a run (folder of a
//! trained model) without adapters.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use taper_trainer::merge;

use crate::config::recipe;
use crate::folder::{RunFolder, derived};
use crate::tasks::without_adapters;

/// Adds the adapters of the run at `root` to the weights that they change, and writes the sum, with
/// configuration and tokenizer, as the run `target`. The weights and adapters are those of the
/// checkpoint `name`, or of the default checkpoint if `name` is `None`. Returns the path of this
/// checkpoint, and the number of updates after which it was saved. The folder `target` appears only
/// when it is complete.
///
/// # Errors
/// If `target` exists or cannot be written, or the run has no adapters or cannot be loaded.
pub fn merge_adapters(root: &Path, name: Option<&str>, target: &Path) -> Result<(PathBuf, u64)> {
    let run = RunFolder::open(root)?;
    let config = run.load_config(&[])?;
    if !config.model.lora.is_on() {
        bail!("{}: the run has no adapters: its weights are whole already", root.display());
    }
    ensure!(!target.exists(), "{} exists: name another folder", target.display());
    let checkpoint = match name {
        Some(name) => run.checkpoint(Some(name)).with_context(|| format!("checkpoint {name}"))?,
        None => run.checkpoint(None)?,
    };
    let config = without_adapters(&config);
    let merged = merge(&checkpoint, recipe(&config)?)?;
    derived(root, &config, target, merged.step(), |weights| Ok(merged.save(weights)?))?;
    Ok((checkpoint, merged.step()))
}
