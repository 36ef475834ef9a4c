//! `taper resume`: continues an interrupted run.

use anyhow::Result;
use taper_run::{RunFolder, training};

use crate::arguments::Resume;
use crate::processes::Processes;

/// Runs the command. `threads` is the number of threads that the user requested.
pub(crate) fn run(arguments: &Resume, threads: Option<usize>) -> Result<()> {
    let mut settings = arguments.output.settings(None);
    // If several processes train together, only the first needs the run's folder, and the others
    // may lack it. So an error is not returned here, but below, and only by the first process.
    let opened = RunFolder::open(&arguments.run).and_then(|folder| {
        let config = folder.load_config(&arguments.overrides.set)?;
        Ok((folder, config))
    });
    let usual = opened.as_ref().map_or(0, |(_, config)| config.threads);
    let processes = Processes::join(&arguments.output, threads, usual)?;
    processes.count_in(&mut settings);
    if !processes.is_first() {
        let folder = RunFolder::new(&arguments.run);
        return processes.train(&arguments.output, |exchange, observer, stop| {
            training::follow(exchange, &folder, None, &settings, observer, stop)
        });
    }
    let (folder, config) = opened?;
    processes.train(&arguments.output, |exchange, observer, stop| {
        let (recipes, from) = ((&config, None), arguments.from.as_deref());
        training::resume_among(exchange, &folder, recipes, &settings, from, observer, stop)
    })
}
