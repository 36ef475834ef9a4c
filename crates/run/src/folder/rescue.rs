//! Rescue of the state of a training when its run (the folder to which it writes) cannot be
//! written.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use taper_model::Model;
use taper_trainer::Trainer;

use super::{KeptFiles, MetricsLog, RunFolder};
use crate::config::RunConfig;
use crate::config::paths::moved;
use crate::folder::files::write_atomically;

/// Saves the state that `trainer` has in memory: in the run's own folder if it can be written
/// again, or else as a new run inside the folder `place`. The new run can be resumed there or
/// moved. If `place` is `None`, it is made in the system's folder for temporary files. Returns the
/// run with the saved state.
///
/// # Errors
/// When neither folder can be written.
pub(crate) fn rescue<M: Model>(
    trainer: &mut Trainer<M>,
    run: &RunFolder,
    config: &RunConfig,
    files: &KeptFiles,
    log: &mut MetricsLog,
    place: Option<&Path>,
) -> Result<RunFolder> {
    let unsaved = trainer.unsaved()?;
    let is_whole = files.restore().is_ok() && log.restore().is_ok() && log.flush().is_ok();
    if is_whole && run.config().is_file() && unsaved.save(&run.checkpoints()).is_ok() {
        return Ok(run.clone());
    }
    let elsewhere = match place {
        Some(place) => make_folder(place, run)?,
        None => {
            let usual = std::env::temp_dir().join("taper-rescue");
            // The usual folder may belong to another user of the machine, so another one is tried.
            let temporary =
                || std::env::temp_dir().join(format!("taper-rescue-{}", std::process::id()));
            make_folder(&usual, run).or_else(|_| make_folder(&temporary(), run))?
        }
    };
    let root = elsewhere.root();
    let mut config = config.clone();
    config.data = moved(&config.data, &run.absolute_root(), &elsewhere.absolute_root());
    elsewhere.save_config(&config)?;
    files.copy_to(root)?;
    write_atomically(&elsewhere.metrics(), &log.contents()?)?;
    unsaved.save(&elsewhere.checkpoints())?;
    Ok(elsewhere)
}

/// Makes a new folder inside `place` for the rescued state of `run`.
fn make_folder(place: &Path, run: &RunFolder) -> Result<RunFolder> {
    fs::create_dir_all(place).with_context(|| format!("cannot make {}", place.display()))?;
    let folder = RunFolder::new(&free_name(place, run.root())?);
    fs::create_dir(folder.root())
        .with_context(|| format!("cannot make {}", folder.root().display()))?;
    Ok(folder)
}

/// Path inside `place` at which there is nothing: with the name of the folder `run` or, if it is
/// taken, the same name with a number.
fn free_name(place: &Path, run: &Path) -> Result<PathBuf> {
    let name = run
        .file_name()
        .map_or_else(|| "run".to_owned(), |name| name.to_string_lossy().into_owned());
    let free =
        (1..1000).map(|number| if number == 1 { name.clone() } else { format!("{name}-{number}") });
    match free.map(|name| place.join(name)).find(|path| !path.exists()) {
        Some(path) => Ok(path),
        None => {
            bail!("{}: every name for a rescued run is taken; remove old ones", place.display())
        }
    }
}
