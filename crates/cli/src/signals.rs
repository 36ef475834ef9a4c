//! Signals that ask the process to end: orders (Ctrl-C, SIGTERM, SIGHUP), and warnings of batch
//! systems that they will end the process later (SIGUSR1, SIGUSR2, SIGXCPU).
//!
//! The first signal asks training to stop as soon as possible and to save a checkpoint. A second
//! order ends the program at once; a second warning is ignored. Before training begins and after it
//! is complete there is nothing to wait for, and the first signal ends the program. Files on disk
//! are then complete, because nothing is written in place.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::processes::farewell::say_farewell;
use crate::text::{quoted, say};
use taper_run::folder::RunLock;

/// Time within which several signals count as one, because one event may cause several signals. The
/// program `timeout` sends a signal to its process and then to its process group. When a terminal
/// is closed, both the terminal and the shell send a signal.
const ONE_SIGNAL: Duration = Duration::from_millis(500);

/// A signal that asks the process to end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Signal {
    number: u8,
    /// True if the signal is a warning of a batch system, which may be repeated.
    is_warning: bool,
}

impl Signal {
    /// Returns the exit code of a process that the signal has ended, by the convention of shells.
    pub(crate) fn exit_code(self) -> u8 {
        128 + self.number
    }

    /// Ends the process from a handler.
    pub(crate) fn end(self) -> ! {
        std::process::exit(i32::from(self.exit_code()))
    }
}

/// Calls `handle`, on its own thread, for every signal that asks the process to end. SIGHUP and
/// warnings are left out if the process was started so that it ignores them (`nohup`, `trap ''`).
///
/// # Errors
/// When the system does not let the signals be handled, or no thread can be started.
#[cfg(unix)]
pub(crate) fn on_signal(mut handle: impl FnMut(Signal) + Send + 'static) -> Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU};
    let warnings = [SIGUSR1, SIGUSR2, SIGXCPU];
    let heeded = [SIGHUP].into_iter().chain(warnings);
    let asking =
        heeded.filter(|&signal| !taper_ops::signals::is_ignored(signal)).chain([SIGINT, SIGTERM]);
    let mut signals = signal_hook::iterator::Signals::new(asking)
        .context("the system does not let signals be handled")?;
    let wait = move || {
        for number in signals.forever() {
            let is_warning = warnings.contains(&number);
            handle(Signal { number: u8::try_from(number).unwrap_or(0), is_warning });
        }
    };
    let thread = std::thread::Builder::new().name("signals".to_owned()).spawn(wait);
    thread.map(drop).context("cannot start the thread that waits for signals; is memory limited?")
}

/// Calls `handle`, on its own thread, when the process is asked to end.
///
/// # Errors
/// When the system does not let the signal be handled.
#[cfg(not(unix))]
pub(crate) fn on_signal(mut handle: impl FnMut(Signal) + Send + 'static) -> Result<()> {
    ctrlc::set_handler(move || handle(Signal { number: 2, is_warning: false }))
        .context("the system does not let signals be handled")
}

/// State of a run that the signal handler reads and changes.
#[derive(Debug)]
pub(crate) struct Signals {
    stop: Arc<AtomicBool>,
    /// Stage of the run: [`PREPARING`], [`TRAINING`] or [`SAVED`].
    stage: Arc<AtomicU8>,
    /// Exit code of the first signal; 0 if there has been none.
    code: Arc<AtomicU8>,
    /// Whether this is one of several processes, but not the first. Only the first process prints.
    /// A signal to any process stops all processes.
    follows: bool,
}

const PREPARING: u8 = 0;
const TRAINING: u8 = 1;
const SAVED: u8 = 2;

impl Signals {
    /// Makes the state before any signal. No handler is installed yet.
    pub(crate) fn new(follows: bool) -> Self {
        Self {
            follows,
            stop: Arc::default(),
            stage: Arc::new(AtomicU8::new(PREPARING)),
            code: Arc::default(),
        }
    }

    /// Installs the handler for the run in `folder`, whose lock this process holds.
    ///
    /// # Errors
    /// When the system refuses the handler.
    pub(crate) fn install(&self, folder: &Path) -> Result<()> {
        let (stop, stage) = (Arc::clone(&self.stop), Arc::clone(&self.stage));
        let (code, folder, mut last) = (Arc::clone(&self.code), folder.to_owned(), None::<Instant>);
        let follows = self.follows;
        on_signal(move |signal| {
            if last.is_some_and(|last| last.elapsed() < ONE_SIGNAL) {
                return;
            }
            if signal.is_warning && stop.load(Ordering::SeqCst) {
                return;
            }
            last = Some(Instant::now());
            if follows {
                code.store(signal.exit_code(), Ordering::SeqCst);
                if stop.swap(true, Ordering::SeqCst) {
                    say_farewell();
                    signal.end();
                }
                return;
            }
            let run = quoted(&folder);
            let message = match stage.load(Ordering::SeqCst) {
                PREPARING => {
                    format!("stopped before the first update; continue with: taper resume {run}")
                }
                SAVED => format!(
                    "stopped; the training is complete and saved, and its test is made by: taper \
                     resume {run}"
                ),
                _ if stop.load(Ordering::SeqCst) => {
                    format!("stopped; continue from the last checkpoint with: taper resume {run}")
                }
                _ => {
                    code.store(signal.exit_code(), Ordering::SeqCst);
                    stop.store(true, Ordering::SeqCst);
                    say("\nstopping and saving a checkpoint; again to stop at once");
                    return;
                }
            };
            say(&format!("\n{message}"));
            RunLock::sign_off(&folder);
            say_farewell();
            signal.end();
        })
    }

    /// Returns the exit code of the signal that stopped training; if another process received it,
    /// the exit code of Ctrl-C.
    pub(crate) fn exit_code(&self) -> u8 {
        match self.code.load(Ordering::SeqCst) {
            0 => 128 + 2,
            code => code,
        }
    }

    /// Returns the flag that becomes true at the first signal.
    pub(crate) fn stop_flag(&self) -> &AtomicBool {
        &self.stop
    }

    /// Declares that training begins: from here on, the first signal stops training after the
    /// current update.
    pub(crate) fn training_begins(&self) {
        self.stage.store(TRAINING, Ordering::SeqCst);
    }

    /// Declares that training is complete and saved: from here on, the first signal ends the
    /// program.
    pub(crate) fn training_is_saved(&self) {
        self.stage.store(SAVED, Ordering::SeqCst);
    }
}
