//! `taper resume`: an interrupted run goes on.

use anyhow::Result;

use crate::arguments::Resume;
use crate::run_folder::RunFolder;
use crate::training;

/// Runs the command.
pub(crate) fn run(arguments: &Resume) -> Result<()> {
    let folder = RunFolder::open(&arguments.run)?;
    let config = folder.load_config(&arguments.overrides.set)?;
    training::resume(&folder, &config, &arguments.output, arguments.from.as_deref())
}
