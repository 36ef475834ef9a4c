//! `taper report`: writes a page about a run.

use std::path::{Path, PathBuf};

use anyhow::Result;
use taper_report::RunData;

use super::{write_page, write_pictures};
use crate::advice::again;
use crate::arguments::Report;

/// Returns the path of a run as its page shows it. The page may be sent to other people, so it
/// shows no absolute path: the path is relative to the current folder if the run is inside it. Of
/// any other absolute path, only the last part is returned.
fn shown(run: &Path) -> PathBuf {
    let inside = std::env::current_dir().ok().and_then(|folder| run.strip_prefix(folder).ok());
    match run.file_name().filter(|_| run.is_absolute()) {
        Some(name) => inside.unwrap_or(Path::new(name)).to_owned(),
        None => run.to_owned(),
    }
}

/// Runs the command.
pub(crate) fn run(arguments: &Report) -> Result<()> {
    let language = arguments.pictures.language.into();
    let mut run = RunData::read(&arguments.run)?;
    run.again = again(&shown(&arguments.run));
    if !arguments.attention.is_empty() {
        let load = arguments.loading.settings();
        run.look(&arguments.attention, &load)?;
    }
    let path = arguments.output.clone().unwrap_or_else(|| arguments.run.join("report.html"));
    write_page(&path, &taper_report::report(&run, language)?)?;
    write_pictures(&run.figures(language)?, &arguments.pictures)
}
