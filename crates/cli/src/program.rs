//! The program as it was called, and how it is called again.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Result, bail};

/// A call of the program: by its own file, or by an interpreter that has it as a library.
#[derive(Debug, Clone)]
pub struct Program {
    /// Name by which it was called.
    pub name: OsString,
    /// Arguments after the name.
    pub arguments: Vec<OsString>,
    /// Words that call it again, before its arguments; none if they are not known.
    pub command: Vec<OsString>,
    /// Folder of the file that was called, beside which the manual is installed.
    pub folder: PathBuf,
    /// File with the machine code, by which processes recognise each other.
    pub code: PathBuf,
}

static PROGRAM: OnceLock<Program> = OnceLock::new();

impl Program {
    /// The program of this process, with the arguments of the process.
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

/// Sets the call of this process; the first one holds.
pub(crate) fn set(program: Program) {
    taper_run::processes::set_code(&program.code);
    let _ = PROGRAM.set(program);
}

/// The call of this process.
pub(crate) fn get() -> &'static Program {
    PROGRAM.get_or_init(Program::of_process)
}

/// Name and arguments of the call of this process.
pub(crate) fn words() -> impl Iterator<Item = OsString> {
    let program = get();
    std::iter::once(&program.name).chain(&program.arguments).cloned()
}

/// Command that runs this program again, without arguments.
///
/// # Errors
/// When its file is not known.
pub(crate) fn again() -> Result<Command> {
    let [first, others @ ..] = get().command.as_slice() else {
        bail!("the program's own file is not known");
    };
    let mut command = Command::new(first);
    command.args(others);
    Ok(command)
}
