//! Describes how this program was called, and makes the command that calls it again.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Result, bail};

/// A call of the program: by its executable file, or by a Python interpreter, which loads it as a
/// library.
#[derive(Debug, Clone)]
pub struct Program {
    /// Name by which the program was called.
    pub name: OsString,
    /// Arguments after the name.
    pub arguments: Vec<OsString>,
    /// Command that calls the program again, without arguments; empty if the command is not known.
    pub command: Vec<OsString>,
    /// Folder of the executable file; the manual is installed at a fixed place relative to it.
    pub folder: PathBuf,
    /// File with the machine code of the program. Processes that train together compare these
    /// files, so that all of them run the same build.
    pub code: PathBuf,
}

static PROGRAM: OnceLock<Program> = OnceLock::new();

impl Program {
    /// Returns the call of this process by its executable file.
    #[must_use]
    pub fn of_process() -> Self {
        let mut arguments = std::env::args_os();
        let file = std::env::current_exe().ok();
        let real = file.as_ref().and_then(|file| file.canonicalize().ok()).or_else(|| file.clone());
        Self {
            name: arguments.next().unwrap_or_else(|| "taper".into()),
            arguments: arguments.collect(),
            command: file.into_iter().map(PathBuf::into_os_string).collect(),
            folder: real.iter().filter_map(|file| file.parent()).map(Path::to_owned).collect(),
            code: real.unwrap_or_default(),
        }
    }
}

/// Sets the call of this process. If it is set already, it stays as it is.
pub(crate) fn set(program: Program) {
    taper_run::processes::set_code(&program.code);
    let _ = PROGRAM.set(program);
}

/// Returns the call of this process.
pub(crate) fn get() -> &'static Program {
    PROGRAM.get_or_init(Program::of_process)
}

/// Returns the name and the arguments with which this process was called.
pub(crate) fn words() -> impl Iterator<Item = OsString> {
    let program = get();
    std::iter::once(&program.name).chain(&program.arguments).cloned()
}

/// Returns a command that runs this program again, without arguments.
///
/// # Errors
/// When the command is not known.
pub(crate) fn again() -> Result<Command> {
    let [first, others @ ..] = get().command.as_slice() else {
        bail!("the program's own file is not known");
    };
    let mut command = Command::new(first);
    command.args(others);
    Ok(command)
}
