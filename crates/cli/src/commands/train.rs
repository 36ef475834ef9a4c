//! `taper train`: a new run from a recipe.

use std::path::{Component, Path};

use anyhow::{Result, bail};
use taper_run::{RunConfig, RunFolder, training};

use crate::arguments::Train;
use crate::estimate::estimate;
use crate::progress;
use crate::text::print_line;

/// Runs the command.
pub(crate) fn run(arguments: &Train) -> Result<()> {
    let config = RunConfig::load(&arguments.config, &arguments.overrides.set)?;
    let root = match &arguments.run {
        Some(root) => root.clone(),
        None => Path::new("runs").join(plain(&config.name)?),
    };
    let folder = RunFolder::new(&root);
    let settings = arguments.output.settings(arguments.from.as_deref());
    if arguments.dry_run {
        estimate(&folder, &config, &settings, arguments.output.json)?;
        if !arguments.output.json {
            print_line("nothing was kept; without --dry-run the training begins")?;
        }
        return Ok(());
    }
    if !folder.exists() {
        return progress::report(&arguments.output, |observer, stop| {
            training::start(&folder, &config, &settings, observer, stop)
        });
    }
    if !arguments.resume {
        bail!(
            "{} exists already and is left as it is: continue it with `taper resume {}`, or \
             train a new run with --run DIR",
            root.display(),
            root.display()
        );
    }
    let folder = RunFolder::open(&root)?;
    progress::report(&arguments.output, |observer, stop| {
        training::resume(&folder, &config, &settings, None, observer, stop)
    })
}

/// `name`, by which a folder may be called.
///
/// # Errors
/// When it would lead elsewhere.
fn plain(name: &str) -> Result<&str> {
    let mut parts = Path::new(name).components();
    match (parts.next(), parts.next()) {
        (Some(Component::Normal(_)), None) if !name.contains(['/', '\\', '\0']) => Ok(name),
        _ => bail!(
            "key `name` = {name:?}: the run would not lie in runs/: use a name without folders, \
             or say where with --run DIR"
        ),
    }
}
