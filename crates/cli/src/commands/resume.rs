//! `taper resume`: an interrupted run goes on.

use anyhow::Result;
use taper_run::{RunFolder, training};

use crate::arguments::Resume;
use crate::progress;

/// Runs the command.
pub(crate) fn run(arguments: &Resume) -> Result<()> {
    let folder = RunFolder::open(&arguments.run)?;
    let config = folder.load_config(&arguments.overrides.set)?;
    let settings = arguments.output.settings(None);
    progress::report(&arguments.output, |observer, stop| {
        training::resume(&folder, &config, &settings, arguments.from.as_deref(), observer, stop)
    })
}
