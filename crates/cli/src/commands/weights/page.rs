//! `taper page`: writes a page with the model of a run, which translates in a browser.

use std::path::PathBuf;

use anyhow::{Context, Result};
use taper_run::engines::browser::{BrowserPage, write_page};

use crate::arguments::PageOfRun;
use crate::program;
use crate::text::print_line;

/// Path of the WebAssembly module that is installed with the program, relative to the program's
/// folder.
const MODULE: &str = "../share/taper/taper.wasm";

/// Runs the command.
pub(crate) fn run(arguments: &PageOfRun) -> Result<()> {
    let module = read_module(arguments.module.clone())?;
    let PageOfRun { run, page, language, from, .. } = arguments;
    let name = from.checkpoint.as_deref();
    let BrowserPage { bytes, step } = write_page(run, name, &module, (*language).into(), page)?;
    print_line(&format!(
        "{}: {:.1} MB with the weights of step {step}; open it in a browser",
        page.display(),
        bytes as f64 / 1e6
    ))
}

fn read_module(given: Option<PathBuf>) -> Result<Vec<u8>> {
    let is_given = given.is_some();
    let file = given.unwrap_or_else(|| program::get().folder.join(MODULE));
    std::fs::read(&file).with_context(|| match is_given {
        true => file.display().to_string(),
        false => format!(
            "{}: no WebAssembly module is installed beside this program; make one with \
             scripts/package/web.sh, and name it with --module",
            file.display()
        ),
    })
}
