//! `taper theory`: models whose weights are set by hand.

mod rasp;
mod show;
mod turing;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use taper_plots::Figure;
use taper_report::NamedFigure;
use taper_run::tasks::TaskModel;
use taper_run::{RunEvent, RunFolder, save_by_hand};

use super::reports::write_pictures;
use crate::arguments::{Pictures, TheoryCommand};
use crate::text::print_line;

/// Runs the command.
pub(crate) fn run(command: &TheoryCommand) -> Result<()> {
    match command {
        TheoryCommand::Turing(arguments) => turing::run(arguments),
        TheoryCommand::Rasp(arguments) => rasp::run(arguments),
        TheoryCommand::Show(arguments) => show::run(arguments),
    }
}

/// Reads the file of a Turing machine or of a RASP program (select and aggregate).
fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Saves a model as a run, and prints the run's folder.
fn save(model: &impl TaskModel, words: &[String], folder: &Path) -> Result<()> {
    let mut observer = |_: &RunEvent<'_>| Ok(());
    save_by_hand(&RunFolder::new(folder), model, words, &mut observer)?;
    print_line(&format!("saved as {}", folder.display()))
}

/// Writes named figures to the requested folders; does nothing if none is requested.
fn draw(figures: Vec<(String, Figure)>, pictures: &Pictures) -> Result<()> {
    if pictures.svg.is_none() && pictures.png.is_none() {
        return Ok(());
    }
    let named = |(name, figure): (String, Figure)| NamedFigure { name, figure };
    write_pictures(&figures.into_iter().map(named).collect::<Vec<_>>(), pictures)
}
