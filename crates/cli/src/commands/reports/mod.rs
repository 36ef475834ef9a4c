//! The commands that show runs: as pages, figures and on the terminal.

pub(super) mod compare;
pub(super) mod extrapolate;
pub(super) mod report;
pub(super) mod scaling;
#[cfg(feature = "serve")]
pub(super) mod serve;
#[cfg(feature = "top")]
pub(super) mod top;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use taper_report::NamedFigure;
use taper_run::folder::files::write_atomically;

use crate::arguments::Pictures;
use crate::file_names::distinct;
use crate::text::print_line;

/// Scale of a PNG picture, in pixels per unit of length of the figure.
const ZOOM: f32 = 2.0;

/// Writes figures to the requested folders, and prints their number and the folder. Figures with
/// the same name get a number.
///
/// # Errors
/// When a figure cannot be drawn or written.
pub(super) fn write_pictures(figures: &[NamedFigure], wanted: &Pictures) -> Result<()> {
    let kinds = [("svg", &wanted.svg), ("png", &wanted.png)];
    for (kind, folder) in kinds {
        let Some(folder) = folder else { continue };
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let names = distinct(figures.iter().map(|figure| &figure.name));
        for (mut name, NamedFigure { figure, .. }) in names.into_iter().zip(figures) {
            let drawing = figure.draw()?;
            let bytes = match kind {
                "svg" => drawing.standalone().into_bytes(),
                _ => drawing.png(wanted.theme(), ZOOM)?,
            };
            name.push(format!(".{kind}"));
            write_atomically(&folder.join(name), &bytes)?;
        }
        print_line(&format!("{} figures in {}", figures.len(), folder.display()))?;
    }
    Ok(())
}

/// Writes a page, and prints its path.
///
/// # Errors
/// When the page cannot be written.
fn write_page(path: &Path, html: &str) -> Result<()> {
    write_atomically(path, html.as_bytes())?;
    print_line(&path.display().to_string())
}
