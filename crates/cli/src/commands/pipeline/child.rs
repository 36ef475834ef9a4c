//! The process of a step. It ends when this one does, even if this one is killed: it holds the reading
//! end of a pipe that this process holds open.

use std::io::Read;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, bail};

use crate::error::Interrupted;
use crate::signals::on_signal;

/// Environment variable of a process whose standard input closes when it is to end.
const VARIABLE: &str = "TAPER_ENDS_WITH_INPUT";

/// Runs one process after another.
pub(super) struct Child {
    /// Held open as long as the process is to run.
    input: Arc<Mutex<Option<ChildStdin>>>,
}

impl Child {
    /// Prepares for signals: a process that runs then is asked to end, and is waited for.
    ///
    /// # Errors
    /// When the system refuses the handler.
    pub(super) fn new() -> Result<Self> {
        let input: Arc<Mutex<Option<ChildStdin>>> = Arc::default();
        let of_handler = Arc::clone(&input);
        on_signal(move |signal| {
            let held = of_handler.lock().unwrap_or_else(PoisonError::into_inner).take();
            if held.is_none() {
                signal.end();
            }
        })?;
        Ok(Self { input })
    }

    /// Runs this program with `arguments`, as the step `name`.
    ///
    /// # Errors
    /// When it fails, or a signal ended it; it has said why.
    pub(super) fn run(&mut self, name: &str, arguments: &[String]) -> Result<()> {
        let program = std::env::current_exe().context("the program's own file is not known")?;
        let mut process = Command::new(&program)
            .args(arguments)
            .env(VARIABLE, "1")
            .stdin(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start step {name}"))?;
        let held = || self.input.lock().unwrap_or_else(PoisonError::into_inner);
        *held() = process.stdin.take();
        let status = process.wait().context("cannot wait for a step")?;
        let was_asked = held().take().is_none();
        match status.code() {
            Some(0) => Ok(()),
            Some(code) if was_asked || code > 128 => {
                Err(Interrupted(u8::try_from(code).unwrap_or(1)).into())
            }
            Some(code) => {
                bail!("step {name} failed (exit code {code}); the same command goes on from there")
            }
            None if was_asked => Err(Interrupted(128 + 15).into()),
            None => {
                bail!("step {name} was ended ({status}); the same command goes on from there")
            }
        }
    }
}

/// Asks this process to end when its standard input closes, if it is a step of a pipeline.
pub(crate) fn end_with_parent() {
    if std::env::var_os(VARIABLE).is_none() {
        return;
    }
    let wait = || {
        let mut block = [0; 64];
        while std::io::stdin().read(&mut block).is_ok_and(|count| count > 0) {}
        #[cfg(unix)]
        let raised = signal_hook::low_level::raise(signal_hook::consts::SIGTERM).is_ok();
        #[cfg(not(unix))]
        let raised = false;
        if !raised {
            std::process::exit(128 + 15);
        }
    };
    // Without the thread the process ends later, when it is done.
    let _ = std::thread::Builder::new().name("parent".to_owned()).spawn(wait);
}
