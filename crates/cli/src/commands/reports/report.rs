//! `taper report`: writes a page about a run.

use anyhow::Result;
use taper_report::RunData;

use super::{write_page, write_pictures};
use crate::advice::again;
use crate::arguments::Report;

/// Runs the command.
pub(crate) fn run(arguments: &Report) -> Result<()> {
    let language = arguments.pictures.language.into();
    let mut run = RunData::read(&arguments.run)?;
    run.again = again(&arguments.run);
    if !arguments.attention.is_empty() {
        let load = arguments.loading.settings();
        run.look(&arguments.attention, &load)?;
    }
    let path = arguments.output.clone().unwrap_or_else(|| arguments.run.join("report.html"));
    write_page(&path, &taper_report::report(&run, language)?)?;
    write_pictures(&run.figures(language)?, &arguments.pictures)
}
