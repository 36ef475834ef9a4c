//! Processes that train one model together: the number of this process, its share of the cores, and
//! how it finds the others.

mod cores;
mod launcher;
mod slurm;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use taper_trainer::Rendezvous;

pub use cores::{cores, take_share};

/// Environment variable with a secret that the processes of one training share. They need it if
/// they are on several machines.
pub const KEY_VARIABLE: &str = "TAPER_KEY";
/// Port at which processes meet if `MASTER_PORT` is not set; PyTorch has the same default.
const USUAL_PORT: u16 = 29_500;
/// How long processes wait for the others to start.
const PATIENCE: Duration = Duration::from_secs(300);

/// File with the machine code of this process, if it is not the program's.
static CODE: OnceLock<PathBuf> = OnceLock::new();

/// Sets the file with the machine code of this process, for a library that an interpreter has
/// loaded. Processes that train together must have the same code.
pub fn set_code(file: &Path) {
    let _ = CODE.set(file.to_owned());
}

/// File with the machine code of this process.
pub(crate) fn code() -> io::Result<PathBuf> {
    CODE.get().cloned().map_or_else(std::env::current_exe, Ok)
}

/// Place of this process among several, which its launcher has given it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Number of the process, from 0.
    pub rank: usize,
    /// Number of processes.
    pub size: usize,
    /// Number of the process among those on this machine, from 0.
    pub local_rank: usize,
    /// Number of processes on this machine; 1 if unknown.
    pub local_size: usize,
    /// True if a launcher of MPI started the process.
    pub by_mpi: bool,
    /// Name of the machine of process 0, if known.
    host: Option<String>,
    /// Port at which process 0 listens.
    port: u16,
}

impl Place {
    /// Reads the place from the variables of `torchrun`, `mpirun` or `srun`; `None` if none of them
    /// is set, or this is the only process.
    ///
    /// # Errors
    /// When a variable is not a number, or variables contradict each other.
    pub fn of_environment(get: &dyn Fn(&str) -> Option<String>) -> Result<Option<Self>> {
        launcher::place(get)
    }

    /// Place of process `rank` of `size` processes on this machine, which meet at `port`.
    #[must_use]
    pub fn local(rank: usize, size: usize, port: u16) -> Self {
        let host = Some("127.0.0.1".to_owned());
        Self { rank, size, local_rank: rank, local_size: size, by_mpi: false, host, port }
    }

    /// Variables by which a process that this one starts gets this place.
    #[must_use]
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        vec![
            ("RANK", self.rank.to_string()),
            ("WORLD_SIZE", self.size.to_string()),
            ("LOCAL_RANK", self.local_rank.to_string()),
            ("LOCAL_WORLD_SIZE", self.local_size.to_string()),
            ("MASTER_ADDR", self.host.clone().unwrap_or_default()),
            ("MASTER_PORT", self.port.to_string()),
        ]
    }

    /// Settings with which processes find each other; `key` is their secret.
    ///
    /// # Errors
    /// When the machine of process 0 is unknown.
    pub fn rendezvous(&self, key: String) -> Result<Rendezvous> {
        let host = match &self.host {
            Some(host) => host.clone(),
            None if self.local_size == self.size => "127.0.0.1".to_owned(),
            None => bail!(
                "process {} of {}: set MASTER_ADDR to the machine of process 0, and MASTER_PORT to \
                 a port that is free there",
                self.rank,
                self.size
            ),
        };
        let (rank, size, port) = (self.rank, self.size, self.port);
        Ok(Rendezvous { rank, size, host, port, key, patience: PATIENCE })
    }
}

/// Number in the variable `name`; `None` if it is not set.
fn number(get: &dyn Fn(&str) -> Option<String>, name: &str) -> Result<Option<usize>> {
    let Some(text) = get(name) else { return Ok(None) };
    let parsed = text.trim().parse();
    parsed.map(Some).with_context(|| {
        format!(
            "the variable {name} is {text:?}, which is not a \
                                              number"
        )
    })
}
