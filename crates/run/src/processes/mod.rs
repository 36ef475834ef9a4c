//! Processes that train one model together: the rank (index) of this process, its share of the
//! cores, and how it connects to the other processes.

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

/// Environment variable with a secret that all processes of one training know. It must be set if
/// the processes are on several machines.
pub const KEY_VARIABLE: &str = "TAPER_KEY";
/// Port of process 0, to which the other processes connect, if `MASTER_PORT` is not set. PyTorch
/// has the same default.
const USUAL_PORT: u16 = 29_500;
/// Time for which a process waits for the other processes to start.
const PATIENCE: Duration = Duration::from_secs(300);

/// File with the machine code of this process, if it is a library instead of the program's own
/// file.
static CODE: OnceLock<PathBuf> = OnceLock::new();

/// Sets the file with the machine code of this process. A library that an interpreter has loaded
/// calls this with its own file. Processes that train together must run the same code, and compare
/// these files.
pub fn set_code(file: &Path) {
    let _ = CODE.set(file.to_owned());
}

/// File with the machine code of this process.
pub(crate) fn code() -> io::Result<PathBuf> {
    CODE.get().cloned().map_or_else(std::env::current_exe, Ok)
}

/// Rank of this process among several, and the address at which they connect, as its launcher has
/// set them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Rank: index of the process among all processes.
    pub rank: usize,
    /// Number of processes.
    pub size: usize,
    /// Index of the process among the processes on this machine.
    pub local_rank: usize,
    /// Number of processes on this machine; 1 if it is unknown.
    pub local_size: usize,
    /// True if a launcher of MPI started the process.
    pub by_mpi: bool,
    /// True if the launcher may have bound each process to cores of its own, as `mpirun` and `srun`
    /// do.
    can_be_bound: bool,
    /// Name of the machine of process 0, if it is known.
    host: Option<String>,
    /// Port at which process 0 listens.
    port: u16,
}

impl Place {
    /// Reads the place from the environment variables of `torchrun`, `mpirun` or `srun`. Returns
    /// `None` if none of them is set, or if this is the only process.
    ///
    /// # Errors
    /// If a variable is not a number, or variables contradict each other.
    pub fn of_environment(get: &dyn Fn(&str) -> Option<String>) -> Result<Option<Self>> {
        launcher::place(get)
    }

    /// Place of the process `rank` of `size` processes on this machine. Process 0 listens at
    /// `port`.
    #[must_use]
    pub fn local(rank: usize, size: usize, port: u16) -> Self {
        let host = Some("127.0.0.1".to_owned());
        let (local_rank, local_size) = (rank, size);
        Self { rank, size, local_rank, local_size, by_mpi: false, can_be_bound: false, host, port }
    }

    /// Environment variables that give this place to a process that is started with them.
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

    /// Settings with which the processes connect to each other. `key`: their common secret.
    ///
    /// # Errors
    /// If the machine of process 0 is unknown.
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
