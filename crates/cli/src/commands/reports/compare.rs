//! `taper compare`: compares runs with each other.

use anyhow::{Context, Result};
use taper_report::RunData;

use super::{write_page, write_pictures};
use crate::arguments::Compare;
use crate::text::print_line;

/// Runs the command.
pub(crate) fn run(arguments: &Compare) -> Result<()> {
    let language = arguments.pictures.language.into();
    let read = |root| RunData::read(root).with_context(|| format!("run {}", root.display()));
    let runs = arguments.runs.iter().map(|root| read(root)).collect::<Result<Vec<_>>>()?;
    let comparison = taper_report::compare(&runs)?;
    comparison.lines().iter().try_for_each(|line| print_line(line))?;
    if let Some(path) = &arguments.html {
        write_page(path, &comparison.page(language)?)?;
    }
    write_pictures(&comparison.figures(language)?, &arguments.pictures)
}
