//! `taper average`: averages the weights of a run's last checkpoints. On request, mixes the mean
//! with the weights of the run's parent, that is, of the run that gave it its first weights.

use std::path::PathBuf;

use anyhow::{Result, bail, ensure};
use taper_trainer::{AVERAGED, Checkpoints, SavedCheckpoint, average, read_state};

use crate::arguments::Average;
use crate::text::{print_line, quoted, say};
use taper_run::RunFolder;

/// Runs the command.
pub(crate) fn run(arguments: &Average) -> Result<()> {
    let folder = RunFolder::open(&arguments.run)?;
    let config = folder.load_config(&[])?;
    // Checkpoints that were saved at an interruption are used only if there are no regular
    // checkpoints.
    let all = Checkpoints::new(&folder.checkpoints()).list()?;
    let regular: Vec<SavedCheckpoint> = all.iter().filter(|one| !one.interim).cloned().collect();
    let saved = if regular.is_empty() { all } else { regular };
    ensure!(
        !saved.is_empty(),
        "{} has no checkpoint to average; `taper resume {}` trains on",
        arguments.run.display(),
        quoted(&arguments.run)
    );
    let count = match arguments.last {
        Some(0) => bail!("--last must be at least 1"),
        Some(count) if count > saved.len() => bail!(
            "--last {count}: {} has only {} checkpoints (training.keep_last decides how many are \
             kept)",
            arguments.run.display(),
            saved.len()
        ),
        Some(count) => count,
        None if config.training.average_last > 0 => config.training.average_last.min(saved.len()),
        None => saved.len(),
    };
    let chosen: Vec<PathBuf> =
        saved[saved.len() - count..].iter().map(|one| one.path.clone()).collect();
    let target = folder.checkpoints().join(AVERAGED);
    let averaged = average(&chosen)?;
    let (averaged, with) = match arguments.with_parent {
        None => (averaged, String::new()),
        Some(share) if (0.0..=1.0).contains(&share) => {
            let state = read_state(&saved[saved.len() - 1].path)?;
            let Some(parent) = state.parent else {
                bail!(
                    "{}: the run did not begin with the weights of another run",
                    arguments.run.display()
                );
            };
            let rest = 1.0 - share;
            let with = format!(", with {rest} of {}", parent.path.display());
            (averaged.with_parent(&parent.path, share)?, with)
        }
        Some(share) => bail!("--with-parent {share}: give a share from 0 to 1"),
    };
    if averaged.has_adapters() && count > 1 {
        say(
            "note: the matrices A and B of adapters are averaged separately: their product is near to \
             the average change of the weights, not equal to it",
        );
    }
    averaged.save(&target)?;
    print_line(&format!(
        "averaged {count} checkpoints (steps {} to {}){with} into {}",
        saved[saved.len() - count].step,
        saved[saved.len() - 1].step,
        target.display()
    ))
}
