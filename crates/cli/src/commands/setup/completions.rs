//! `taper completions SHELL`: a completion script on standard output.

use anyhow::{Context, Result};
use clap::CommandFactory;
use std::io::Write;

use crate::arguments::{Arguments, Completions};
use crate::text::standard_output;

/// Runs the command.
pub(crate) fn run(arguments: &Completions) -> Result<()> {
    // Generated in memory first: the generator panics on a closed pipe.
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Arguments::command(), "taper", &mut script);
    standard_output()?.write_all(&script).context("cannot write to standard output")
}
