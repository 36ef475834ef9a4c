//! `taper theory show`: measures claims about models.

use anyhow::{Result, bail};
use serde_json::json;
use taper_experiments::EXPERIMENTS;
use taper_theory::studies::{STUDIES, Study};
use unicode_width::UnicodeWidthStr;

use super::draw;
use crate::arguments::TheoryShow;
use crate::text::print_line;

/// Returns the studies, each of which measures a claim. Studies that need no training come first.
fn studies() -> impl Iterator<Item = &'static Study> {
    STUDIES.iter().chain(EXPERIMENTS)
}

/// Runs the command.
pub(crate) fn run(arguments: &TheoryShow) -> Result<()> {
    let Some(name) = &arguments.name else {
        let width = studies().map(|study| study.name.len()).max().unwrap_or(0);
        for study in studies() {
            print_line(&format!("{:<width$}  {}", study.name, study.claim))?;
        }
        return Ok(());
    };
    let Some(study) = studies().find(|study| study.name == name) else {
        let names = studies().map(|study| study.name).collect::<Vec<_>>();
        bail!("no claim is called {name:?}: choose one of {}", names.join(", "));
    };
    let findings = (study.run)()?;
    if arguments.json {
        print_line(&json!({ "columns": findings.columns, "rows": findings.rows }).to_string())?;
    } else {
        print_line(study.claim)?;
        print_table(&findings.columns, &findings.rows)?;
    }
    draw(findings.figures, &arguments.pictures)
}

/// Prints a table with right-aligned cells.
fn print_table(columns: &[String], rows: &[Vec<String>]) -> Result<()> {
    let of_column = |at: usize| rows.iter().filter_map(move |row| row.get(at));
    let width = |at: usize| {
        let cells = of_column(at).map(|cell| cell.width());
        cells.chain([columns[at].width()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    for row in [columns].into_iter().chain(rows.iter().map(Vec::as_slice)) {
        let cells = row.iter().zip(&widths).map(|(cell, width)| {
            format!("{}{cell}", " ".repeat(width.saturating_sub(cell.width())))
        });
        print_line(&cells.collect::<Vec<_>>().join("  "))?;
    }
    Ok(())
}
