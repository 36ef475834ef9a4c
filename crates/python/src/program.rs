//! The program `taper`, for the script that a wheel installs.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use pyo3::prelude::*;

/// Runs the program with `arguments`, and returns its exit code. A process runs it once, and nothing
/// else of this module. `script` is the file that was called, with `interpreter`, and `code` that of
/// this module.
#[pyfunction]
pub(crate) fn program(
    py: Python<'_>,
    arguments: Vec<OsString>,
    interpreter: OsString,
    script: PathBuf,
    code: PathBuf,
) -> u8 {
    let program = taper::Program {
        name: "taper".into(),
        arguments,
        folder: script.parent().unwrap_or(Path::new(".")).to_owned(),
        command: vec![interpreter, script.into_os_string()],
        code,
    };
    py.allow_threads(|| taper::main(program))
}
