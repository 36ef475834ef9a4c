//! `taper manual FOLDER`: pages for `man`.

use std::fs;

use anyhow::{Context, Result};
use clap::CommandFactory;

use crate::arguments::{Arguments, Manual};
use crate::text::print_line;

/// Runs the command.
pub(crate) fn run(arguments: &Manual) -> Result<()> {
    let folder = &arguments.folder;
    let place = || format!("cannot write into {}", folder.display());
    fs::create_dir_all(folder).with_context(place)?;
    clap_mangen::generate_to(Arguments::command(), folder).with_context(place)?;
    print_line(&format!("the pages are in {}", folder.display()))
}
