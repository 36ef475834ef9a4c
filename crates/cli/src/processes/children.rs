//! Child processes of this process, which train together with it.

use std::net::TcpListener;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use taper_run::processes::{KEY_VARIABLE, Place};
use taper_trainer::ExchangeError;

use crate::commands::pipeline::STEP_LOCK;
use crate::program;

/// Environment variable of child processes, set to the id of their parent.
pub(super) const VARIABLE: &str = "TAPER_CHILD";
/// Time after which child processes that have not ended are killed.
const PATIENCE: Duration = Duration::from_secs(20);

/// Checks that the parent of this process still runs. Before the two processes are connected,
/// nothing else would show that the parent has ended. `rank` is the rank of this process.
///
/// # Errors
/// If the parent has ended.
pub(super) fn watch_parent(rank: usize) -> std::result::Result<(), ExchangeError> {
    if !is_orphan() {
        return Ok(());
    }
    let why = "it ended without a message, as if killed".to_owned();
    Err(ExchangeError::Lost { rank: 0, here: rank, why })
}

/// Returns true if this process is a child whose parent has ended. This is detected only on Unix,
/// which then gives the process another parent.
fn is_orphan() -> bool {
    #[cfg(unix)]
    if let Ok(parent) = std::env::var(VARIABLE) {
        return parent != std::os::unix::process::parent_id().to_string();
    }
    false
}

/// Child processes, with ranks from 1 on.
#[derive(Default)]
pub(super) struct Children(Vec<Child>);

impl Children {
    /// Starts `size - 1` processes with the arguments of this process. Returns a listener on the
    /// port to which they connect, the key with which they identify themselves, and the processes.
    ///
    /// # Errors
    /// When the system starts no more processes, or has no free port.
    pub(super) fn start(size: usize) -> Result<(TcpListener, String, Self)> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).context("no port can be opened")?;
        let port = listener.local_addr().context("cannot tell the port that was opened")?.port();
        let mut secret = [0; 16];
        getrandom::fill(&mut secret).map_err(|error| anyhow!("no random number: {error}"))?;
        let key = taper_data::hexadecimal(&secret);
        let mut children = Self::default();
        for rank in 1..size {
            let child = program::again()?
                .args(&program::get().arguments)
                .envs(Place::local(rank, size, port).variables())
                .env(KEY_VARIABLE, &key)
                .env(VARIABLE, std::process::id().to_string())
                // A child process ends with its parent, so it need not watch the pipeline
                // (`taper pipeline`) that may have started its parent.
                .env_remove(STEP_LOCK)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .spawn()
                .with_context(|| format!("cannot start process {rank} of {size}"))?;
            children.0.push(child);
        }
        Ok((listener, key, children))
    }

    /// Checks that all child processes still run.
    ///
    /// # Errors
    /// If a process has ended. The error is about the ended process with the lowest rank.
    pub(super) fn watch(&mut self) -> std::result::Result<(), ExchangeError> {
        for (index, child) in self.0.iter_mut().enumerate() {
            let rank = index + 1;
            match child.try_wait() {
                Ok(None) => {}
                // The process has reported the reason itself.
                Ok(Some(status)) if status.code().is_some() => {
                    return Err(ExchangeError::Failed { rank });
                }
                Ok(Some(status)) => {
                    return Err(ExchangeError::Lost { rank, here: 0, why: status.to_string() });
                }
                Err(error) => {
                    return Err(ExchangeError::Lost { rank, here: 0, why: error.to_string() });
                }
            }
        }
        Ok(())
    }

    /// Kills all child processes. This loses no work, because training has not begun.
    pub(super) fn kill(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
        }
        self.wait();
    }

    /// Waits until the child processes have ended by themselves; kills processes that still run
    /// after [`PATIENCE`].
    pub(super) fn wait(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        for child in &mut self.0 {
            while matches!(child.try_wait(), Ok(None)) {
                if Instant::now() > deadline {
                    let _ = child.kill();
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        self.0.clear();
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        self.wait();
    }
}
