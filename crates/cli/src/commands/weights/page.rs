//! `taper page`: writes a page with the model of a run, which translates in a browser.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use taper_run::engines::browser::{BrowserPage, BrowserPageSettings, write_page};

use crate::arguments::PageOfRun;
use crate::program;
use crate::text::print_line;

/// Path of the WebAssembly module that is installed with the program, relative to the program's
/// folder.
const MODULE: &str = "../share/taper/taper.wasm";

/// Runs the command.
pub(crate) fn run(arguments: &PageOfRun) -> Result<()> {
    let module = module_file(arguments.module.as_deref());
    let module = read_module(&module, arguments.module.is_some())?;
    let PageOfRun { run, page, language, from, replace, .. } = arguments;
    let settings = BrowserPageSettings {
        checkpoint: from.checkpoint.as_deref(),
        module: &module,
        language: (*language).into(),
        replaces: *replace,
    };
    let BrowserPage { bytes, step } = write_page(run, settings, page)?;
    print_line(&format!(
        "{}: {:.1} MB with the weights of step {step}; open it in a browser",
        page.display(),
        bytes as f64 / 1e6
    ))
}

/// Returns the path of the module that the user has named, or else of the module that is installed
/// with the program.
pub(crate) fn module_file(named: Option<&Path>) -> PathBuf {
    named.map_or_else(|| program::get().folder.join(MODULE), Path::to_owned)
}

/// Reads the module in `file`.
///
/// # Errors
/// If the module cannot be read. `is_named` is true if the user has named the file; otherwise, the
/// error also says how to make the module.
pub(crate) fn read_module(file: &Path, is_named: bool) -> Result<Vec<u8>> {
    std::fs::read(file).with_context(|| match is_named {
        true => file.display().to_string(),
        false => format!(
            "{}: no WebAssembly module is installed beside this program; make one with \
             scripts/package/web.sh, and name it with --module",
            file.display()
        ),
    })
}
