//! Examines libraries, folders and the terminal.

use std::ffi::OsStr;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::{env, fs};

use taper_run::checks::disk;
use taper_run::numbers::bytes;

use super::finding::Finding;
use crate::progress::terminal_width;

/// Free bytes on the disk that a small run needs.
const LITTLE: u64 = 1 << 30;

/// Reports whether the programs of MPI and CUDA are in `PATH`; warns if this build needs a missing
/// program.
pub(super) fn libraries() -> Vec<Finding> {
    let of_kind = |name: &str, is_built: bool, program: &str, advice: &str| {
        let built = if is_built { "" } else { " (not used by this build)" };
        match on_path(program) {
            Some(path) => Finding::ok("libraries", format!("{name}: {}{built}", path.display())),
            None if is_built => {
                Finding::warn("libraries", format!("{name}: no `{program}` on the path"), advice)
            }
            None => Finding::ok("libraries", format!("{name}: none, and this build needs none")),
        }
    };
    vec![
        of_kind(
            "MPI",
            cfg!(feature = "mpi"),
            "mpirun",
            "trainings of many processes by MPI need it: install openmpi-bin",
        ),
        // A finished program needs only the driver, which is examined with the devices.
        of_kind("CUDA's toolkit", false, "nvcc", ""),
    ]
}

/// Returns the path of the first file with the name `program` in the folders of `PATH`.
fn on_path(program: &str) -> Option<PathBuf> {
    let folders = env::var_os("PATH").unwrap_or_default();
    let mut paths = env::split_paths(&folders)
        .map(|folder| folder.join(program).with_extension(env::consts::EXE_EXTENSION));
    paths.find(|path| path.is_file())
}

/// Reports whether folders are writable and have free space: the current folder, the folder of
/// temporary files, and the folder of downloaded models.
pub(super) fn folders() -> Vec<Finding> {
    let current = env::current_dir().unwrap_or_else(|_| PathBuf::from("."));
    let mut findings = vec![
        folder(
            "current folder",
            &current,
            "runs go to `runs` there: change to one of your own folders, or give --run",
        ),
        folder("temporary files", &env::temp_dir(), "set TMPDIR to one of your own folders"),
    ];
    if cfg!(feature = "hub") {
        let home = env::var_os("HF_HOME").map(PathBuf::from).or_else(|| {
            env::var_os("HOME").map(|home| Path::new(&home).join(".cache/huggingface"))
        });
        if let Some(home) = home {
            let advice = "set HF_HOME to one of your own folders";
            findings.push(folder("downloaded models", &home, advice));
        }
    }
    findings
}

/// Reports whether a file can be written to a folder, or to its nearest existing ancestor, and how
/// much space is free. `advice` is given if there is a problem.
fn folder(name: &str, path: &Path, advice: &str) -> Finding {
    let at = path.ancestors().find(|path| path.exists()).unwrap_or(path);
    let probe = at.join(format!(".taper-doctor-{}", std::process::id()));
    let written =
        fs::write(&probe, "written by taper doctor").and_then(|()| fs::remove_file(&probe));
    let shown = format!("{name}: {}", path.display());
    if let Err(error) = written {
        let _ = fs::remove_file(&probe);
        return Finding::fail("folders", format!("{shown}: {error}"), advice);
    }
    match disk::available(at) {
        Some(free) if free < LITTLE => Finding::warn(
            "folders",
            format!("{shown}: {} free", bytes(free)),
            format!("checkpoints of all but small models need more: make room, or {advice}"),
        ),
        Some(free) => Finding::ok("folders", format!("{shown}: {} free", bytes(free))),
        None => Finding::ok("folders", shown),
    }
}

/// Reports the width, colours and character set of the terminal, if standard output is a terminal.
pub(super) fn terminal() -> Vec<Finding> {
    if !std::io::stdout().is_terminal() {
        return vec![Finding::ok("terminal", "output goes to a file or a program")];
    }
    let variable = |name| env::var_os(name).filter(|value| !value.is_empty());
    let is_dumb = variable("TERM").is_none_or(|term| term == "dumb") && cfg!(unix);
    let colours = match variable("COLORTERM") {
        _ if is_dumb => "no colours",
        Some(_) => "all colours",
        None => "colours",
    };
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(variable);
    let speaks_unicode = !cfg!(unix) || locale.as_deref().is_some_and(is_utf8);
    let description = format!("{} columns, {colours}", terminal_width());
    vec![if speaks_unicode {
        Finding::ok("terminal", format!("{description}, Unicode"))
    } else {
        let locale = locale.map_or_else(|| "none".to_owned(), |name| name.display().to_string());
        Finding::warn(
            "terminal",
            format!("{description}, the locale is {locale}"),
            "set LC_ALL to a UTF-8 locale, such as C.UTF-8, so that all letters are shown",
        )
    }]
}

/// Returns true if the name of a locale contains UTF-8.
fn is_utf8(locale: &OsStr) -> bool {
    let locale = locale.to_string_lossy().to_ascii_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}
