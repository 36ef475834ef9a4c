//! `taper train`: a new run from a recipe.

use std::path::Path;

use anyhow::{Result, bail};

use crate::arguments::Train;
use crate::config::RunConfig;
use crate::run_folder::RunFolder;
use crate::training;

/// Runs the command.
pub(crate) fn run(arguments: &Train) -> Result<()> {
    let config = RunConfig::load(&arguments.config, &arguments.overrides.set)?;
    let root = arguments.run.clone().unwrap_or_else(|| Path::new("runs").join(&config.name));
    let folder = RunFolder::new(&root);
    if !folder.exists() {
        return training::start(&folder, &config, &arguments.output);
    }
    if !arguments.resume {
        bail!(
            "{} exists already and is left as it is: continue it with `taper resume {}`, or train a new run with --run DIR",
            root.display(),
            root.display()
        );
    }
    training::resume(&RunFolder::open(&root)?, &config, &arguments.output, None)
}
