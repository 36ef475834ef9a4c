//! Making of runs (folders of trained models) whose weights are derived from the weights of another
//! run.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use taper_trainer::checkpoint_name;

use super::RunFolder;
use super::files::with_suffix;
use crate::config::RunConfig;
use crate::shortlist::copy_shortlist;

/// Makes the run `target`. It has the tokenizer and the shortlist of the run at `root`, the
/// configuration `config`, and one checkpoint, which counts as saved after `step` updates. `save`
/// writes the checkpoint to the folder that it is given. Returns the path of the checkpoint in the
/// new run. The folder `target` appears only when it is complete.
///
/// # Errors
/// When the folder cannot be written, or `save` fails.
pub(crate) fn derived(
    root: &Path,
    config: &RunConfig,
    target: &Path,
    step: u64,
    save: impl FnOnce(&Path) -> Result<()>,
) -> Result<PathBuf> {
    let tokenizers = config.task.load_tokenizers(root)?;
    let partial = with_suffix(target, ".partial");
    if partial.exists() {
        // These files are left from a process that was killed.
        fs::remove_dir_all(&partial)
            .with_context(|| format!("cannot remove {}", partial.display()))?;
    }
    let fill = || -> Result<PathBuf> {
        let folder_made = RunFolder::new(&partial);
        for folder in [folder_made.root().to_owned(), folder_made.checkpoints()] {
            fs::create_dir(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        }
        folder_made.save_config(config)?;
        tokenizers.save(&partial)?;
        copy_shortlist(root, &partial)?;
        save(&folder_made.checkpoints().join(checkpoint_name(step)))?;
        fs::rename(&partial, target)
            .with_context(|| format!("cannot make {}", target.display()))?;
        Ok(RunFolder::new(target).checkpoints().join(checkpoint_name(step)))
    };
    let result = fill();
    if result.is_err() {
        // The error is returned below. The incomplete files are of no use, so they are removed if
        // possible.
        let _ = fs::remove_dir_all(&partial);
    }
    result
}
