//! The command-line program `taper`. A wheel installs it as a Python script that calls this
//! function.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use pyo3::prelude::*;

/// Runs the program with `arguments`, and returns its exit code. A process must call this function
/// only once, and must use nothing else of this module. `script` is the script that was called,
/// `interpreter` is the Python interpreter that runs it, and `code` is the file of the extension
/// module, which contains the program.
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
