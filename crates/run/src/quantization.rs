//! Rounding of the weights of a run (folder of a trained model) to int8. The result is a new run
//! that can be used to generate text, but cannot be trained.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail, ensure};
use taper_trainer::{MODEL_FILE, round_to_int8};

use crate::advice::{Action, Advice};
use crate::folder::{RunFolder, derived, quoted};
use crate::tasks::require_decoding;

/// Result of [`quantize`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quantized {
    /// Folder of the new run.
    pub folder: PathBuf,
    /// Path of the checkpoint whose weights were rounded.
    pub checkpoint: PathBuf,
    /// Number of updates after which this checkpoint was saved.
    pub step: u64,
    /// Size of the file of weights before rounding, in bytes.
    pub before: u64,
    /// Size of the file of weights after rounding, in bytes.
    pub after: u64,
}

/// Rounds the weights of the run at `root` to int8, and writes them to a new folder, with
/// configuration and tokenizer. The new folder is `to` or, if `to` is `None`, a folder next to the
/// run whose name has the suffix `-int8`. The weights are those of the checkpoint `name`, or of the
/// default checkpoint if `name` is `None`. The new folder appears only when it is complete.
///
/// # Errors
/// If the model does not generate text token by token or has adapters, the new folder exists
/// already or cannot be written, or the weights cannot be loaded or are already int8.
pub fn quantize(root: &Path, name: Option<&str>, to: Option<&Path>) -> Result<Quantized> {
    let run = RunFolder::open(root)?;
    let config = run.load_config(&[])?;
    require_decoding(config.task).with_context(|| root.display().to_string())?;
    if config.model.lora.is_on() {
        let error = anyhow!("{}: the run has adapters", root.display());
        let merge = Action::Merge(root.to_owned());
        return Err(
            Advice::new(merge, "makes a run without them, which can be rounded").about(error)
        );
    }
    let target = match to {
        Some(to) => to.to_owned(),
        None => beside(root)?,
    };
    ensure!(!target.exists(), "{} exists: name another folder", target.display());
    let checkpoint = match name {
        Some(name) => run.checkpoint(Some(name)).with_context(|| format!("checkpoint {name}"))?,
        None => run.checkpoint(None)?,
    };
    let rounded = round_to_int8(&checkpoint)?;
    let result =
        derived(root, &config, &target, rounded.step(), |weights| Ok(rounded.save(weights)?));
    let size = |folder: &Path| {
        let file = folder.join(MODEL_FILE);
        Ok::<u64, anyhow::Error>(
            fs::metadata(&file).with_context(|| file.display().to_string())?.len(),
        )
    };
    let (before, after) = (size(&checkpoint)?, size(&result?)?);
    Ok(Quantized { folder: target, before, after, step: rounded.step(), checkpoint })
}

/// Path `RUN-int8` next to the folder `RUN`.
fn beside(root: &Path) -> Result<PathBuf> {
    let whole = root.canonicalize().with_context(|| root.display().to_string())?;
    match root.file_name().or(whole.file_name()) {
        Some(name) if root.file_name().is_some() => {
            Ok(root.with_file_name(format!("{}-int8", name.display())))
        }
        Some(name) => Ok(whole.with_file_name(format!("{}-int8", name.display()))),
        None => bail!("{}: name the new folder", quoted(root)),
    }
}
