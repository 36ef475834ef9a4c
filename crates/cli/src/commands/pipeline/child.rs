//! Runs each step of a pipeline (see `taper pipeline`) as a process. A step's process ends when the
//! pipeline's process ends, even if the pipeline is killed. To notice this, the step reads a pipe
//! that the pipeline holds open. The step also holds a lock. The next pipeline in the same folder
//! waits for this lock, so that no two steps run at the same time.

use std::fs::{File, TryLockError};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::error::Interrupted;
use crate::program;
use crate::signals::{self, Received, Request, on_signal};

/// Environment variable of a step's process: path of the file that the step locks.
pub(crate) const STEP_LOCK: &str = "TAPER_STEP_LOCK";
/// Exit code of a step or a pipeline that was asked to end: that of a process ended by SIGTERM.
pub(super) const ENDED: u8 = 128 + 15;

/// Runs the steps of a pipeline as processes, one after another.
pub(super) struct Child {
    /// Standard input of the running step; the step ends when this pipe is closed. `None` if no
    /// step runs, or the step was asked to end.
    input: Arc<Mutex<Option<ChildStdin>>>,
    /// File that a running step locks.
    step_lock: PathBuf,
    /// Lock of the pipeline, held as long as this value lives.
    _lock: File,
}

impl Child {
    /// Locks the pipeline in `folder`, waits for a step that was left by a killed pipeline, and
    /// installs a signal handler. At the first signal, it asks the running step to end; without a
    /// running step, and at a second order, it ends this process.
    ///
    /// # Errors
    /// When another process runs the pipeline, or the system refuses locks or the handler.
    pub(super) fn new(folder: &Path) -> Result<Self> {
        let create = |path: &Path| {
            File::create(path).with_context(|| format!("cannot write {}", path.display()))
        };
        let lock = create(&folder.join("pipeline.lock"))?;
        // Other errors are ignored, because the file system may not support locks.
        if matches!(lock.try_lock(), Err(TryLockError::WouldBlock)) {
            bail!("{}: another process runs this pipeline; wait for it", folder.display());
        }
        let step_lock = folder.join("step.lock");
        let _ = create(&step_lock)?.lock();
        let input: Arc<Mutex<Option<ChildStdin>>> = Arc::default();
        let (of_handler, mut received) = (Arc::clone(&input), Received::default());
        on_signal(move |signal| {
            if must_end(received.request(signal, Instant::now()), &of_handler) {
                signal.end();
            }
        })?;
        Ok(Self { input, step_lock, _lock: lock })
    }

    /// Runs this program with `arguments`, as the step `name`. Returns true if a signal came, but
    /// the step was completed nevertheless. The pipeline must then end, because the signal handler
    /// has only asked the step to end.
    ///
    /// # Errors
    /// When the step fails, or a signal ended it. The step has already reported the reason.
    pub(super) fn run(&self, name: &str, arguments: &[String]) -> Result<bool> {
        let mut process = program::again()?
            .args(arguments)
            .env(STEP_LOCK, &self.step_lock)
            .stdin(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start step {name}"))?;
        let held = || self.input.lock().unwrap_or_else(PoisonError::into_inner);
        *held() = process.stdin.take();
        let status = process.wait().context("cannot wait for a step")?;
        let was_asked = held().take().is_none();
        ending(name, status, was_asked)
    }
}

/// Reacts to a signal with the meaning `request`: asks the running step, which reads `input`, to
/// end. Returns true if this process must end at once.
fn must_end(request: Request, input: &Mutex<Option<impl Write>>) -> bool {
    let take = || input.lock().unwrap_or_else(PoisonError::into_inner).take();
    match request {
        // The step that was asked to end is still ending.
        Request::Nothing | Request::StopStill => false,
        Request::Stop => match take() {
            Some(mut held) => {
                // Text before the pipe closes asks the step for an orderly end. If it cannot be
                // written, the step has ended already.
                let _ = held.write_all(b"end\n");
                false
            }
            None => true,
        },
        Request::End => true,
    }
}

/// Judges the end of a step; `was_asked` tells whether a signal asked it to end. See
/// [`Child::run`].
fn ending(name: &str, status: ExitStatus, was_asked: bool) -> Result<bool> {
    match status.code() {
        Some(0) => Ok(was_asked),
        Some(code) if was_asked || code > 128 => {
            Err(Interrupted(u8::try_from(code).unwrap_or(1)).into())
        }
        Some(code) => {
            bail!("step {name} failed (exit code {code}); the same command continues from there")
        }
        None if was_asked => Err(Interrupted(ENDED).into()),
        None => {
            bail!("step {name} was ended ({status}); the same command continues from there")
        }
    }
}

/// If this process is a step of a pipeline, starts a thread that ends the process when standard
/// input closes. If text was read before, the pipeline has asked for an orderly end. If not, the
/// pipeline was killed, and this process ends at once. An immediate end is safe, because files on
/// disk are complete at any time.
pub(crate) fn end_with_parent() {
    let Some(path) = std::env::var_os(STEP_LOCK) else { return };
    // The lock is held until the process ends.
    let lock = File::create(path).inspect(|lock| drop(lock.lock()));
    let wait = move || {
        let (mut block, mut asked) = ([0; 64], false);
        while std::io::stdin().read(&mut block).is_ok_and(|count| count > 0) {
            asked = true;
        }
        // The signal of a terminal reaches this process, too. A second one could end it at once.
        if asked && signals::is_ordered() {
            loop {
                std::thread::park();
            }
        }
        #[cfg(unix)]
        if asked && signal_hook::low_level::raise(signal_hook::consts::SIGTERM).is_ok() {
            loop {
                std::thread::park();
            }
        }
        drop(lock);
        std::process::exit(ENDED.into());
    };
    // If the thread cannot be started, the process ends only when its work is done.
    let _ = std::thread::Builder::new().name("pipeline".to_owned()).spawn(wait);
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[test]
    fn only_a_second_order_ends_a_pipeline_whose_step_is_ending() {
        let (mut text, none) = (Vec::new(), Mutex::new(None::<&mut Vec<u8>>));
        assert!(must_end(Request::Stop, &none), "no step is running");
        let input = Mutex::new(Some(&mut text));
        for request in [Request::Stop, Request::Nothing, Request::StopStill] {
            assert!(!must_end(request, &input), "{request:?}");
        }
        assert!(must_end(Request::End, &input));
        assert_eq!(text, b"end\n");
    }

    #[test]
    fn a_signal_is_not_lost_if_the_step_completes() {
        let ending =
            |code: i32, was_asked| ending("one", ExitStatus::from_raw(code << 8), was_asked);
        assert!(!ending(0, false).expect("completed"));
        assert!(ending(0, true).expect("completed"));
        let code = |error: anyhow::Error| error.downcast::<Interrupted>().map(|ended| ended.0).ok();
        assert_eq!(ending(143, false).map_err(code), Err(Some(143)));
        assert_eq!(ending(1, true).map_err(code), Err(Some(1)));
        assert_eq!(ending(1, false).map_err(code), Err(None));
    }
}
