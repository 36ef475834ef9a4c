//! The processes that train one model together: which of them this one is, which cores are its own,
//! and what all of them must have alike.

mod cores;
mod launcher;
mod slurm;

use std::time::Duration;

use anyhow::{Context, Result, bail};
use taper_trainer::Meeting;

pub use cores::{cores, take_share};

/// The variable whose value only processes of one training know. Those that meet beyond one machine
/// need it.
pub const KEY_VARIABLE: &str = "TAPER_KEY";
/// The port at which processes meet unless `MASTER_PORT` names another: PyTorch's.
const USUAL_PORT: u16 = 29_500;
/// How long processes wait for each other to be started.
const PATIENCE: Duration = Duration::from_secs(300);

/// Which of several processes this one is, as whoever started it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Its number, from 0.
    pub rank: usize,
    /// How many there are.
    pub size: usize,
    /// Its number among those of this machine.
    pub local_rank: usize,
    /// How many of them this machine has; 1 where that is not known.
    pub local_size: usize,
    /// Whether MPI's own program started it.
    pub by_mpi: bool,
    /// The machine of process 0, if that is known.
    host: Option<String>,
    /// The port at which process 0 listens.
    port: u16,
}

impl Place {
    /// The place that the variables of `torchrun`, `mpirun` or `srun` name; none where there are
    /// none of them, or this process is the only one.
    ///
    /// # Errors
    /// A variable is no number, or they contradict each other.
    pub fn of_environment(get: &dyn Fn(&str) -> Option<String>) -> Result<Option<Self>> {
        launcher::place(get)
    }

    /// One of `size` processes of this machine, which meet at `port`.
    #[must_use]
    pub fn local(rank: usize, size: usize, port: u16) -> Self {
        let host = Some("127.0.0.1".to_owned());
        Self { rank, size, local_rank: rank, local_size: size, by_mpi: false, host, port }
    }

    /// The variables by which a process started by this one knows its place.
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

    /// Where the processes meet; `key` is what only they know.
    ///
    /// # Errors
    /// The machine of process 0 is not known.
    pub fn meeting(&self, key: String) -> Result<Meeting> {
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
        Ok(Meeting { rank, size, host, port, key, patience: PATIENCE })
    }
}

/// The number that a variable holds, if it is set.
fn number(get: &dyn Fn(&str) -> Option<String>, name: &str) -> Result<Option<usize>> {
    let Some(text) = get(name) else { return Ok(None) };
    let parsed = text.trim().parse();
    parsed.map(Some).with_context(|| format!("the variable {name} is {text:?}, which is no number"))
}
