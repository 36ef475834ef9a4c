//! Signals that ask the process to end: Ctrl-C, SIGTERM and SIGHUP, and those by which batch
//! systems warn, SIGUSR1, SIGUSR2 and SIGXCPU.
//!
//! The first asks training to stop as soon as it can and to save a checkpoint. A second order ends
//! the program at once; a second warning is none. Before training begins and when it is complete
//! there is nothing to wait for, and the first does. Whatever is on disk by then is whole, since
//! nothing is written in place.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::processes::farewell::say_farewell;
use crate::text::{quoted, say};
use taper_run::folder::RunLock;

/// Signals this close to each other are one: `timeout` signals its process and then the group that
/// it is in, a shell passes on to its processes what a closed terminal sends to them too, and none
/// of it is impatience.
const ONE_SIGNAL: Duration = Duration::from_millis(500);

/// A signal that asks the process to end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Signal {
    number: u8,
    /// Whether it warns of an end that comes later, as a batch system does. It may come again.
    is_warning: bool,
}

impl Signal {
    /// Exit code of a process that it has ended, as shells have it.
    pub(crate) fn exit_code(self) -> u8 {
        128 + self.number
    }

    /// Ends the process from a handler.
    pub(crate) fn end(self) -> ! {
        std::process::exit(i32::from(self.exit_code()))
    }
}

/// Calls `handle`, on a thread of its own, for every signal that asks the process to end. SIGHUP
/// and warnings that it was started to ignore (`nohup`, `trap ''`) are none.
///
/// # Errors
/// When the system refuses.
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

/// Calls `handle`, on a thread of its own, when the process is asked to end.
///
/// # Errors
/// When the system refuses.
#[cfg(not(unix))]
pub(crate) fn on_signal(mut handle: impl FnMut(Signal) + Send + 'static) -> Result<()> {
    ctrlc::set_handler(move || handle(Signal { number: 2, is_warning: false }))
        .context("the system does not let signals be handled")
}

/// What the signals have asked for.
#[derive(Debug)]
pub(crate) struct Signals {
    stop: Arc<AtomicBool>,
    /// How far the run has come: one of the numbers below.
    stage: Arc<AtomicU8>,
    /// The exit code by the first signal.
    code: Arc<AtomicU8>,
    /// Whether this is one of several processes and not the first, which alone talks. What it is
    /// asked, all of them do.
    follows: bool,
}

const PREPARING: u8 = 0;
const TRAINING: u8 = 1;
const SAVED: u8 = 2;

impl Signals {
    /// Nothing asked for yet, and nothing that would notice.
    pub(crate) fn new(follows: bool) -> Self {
        Self {
            follows,
            stop: Arc::default(),
            stage: Arc::new(AtomicU8::new(PREPARING)),
            code: Arc::default(),
        }
    }

    /// Installs the handler for the run in `folder`, of which this process has the lock.
    ///
    /// # Errors
    /// When the system refuses it.
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

    /// The exit code by the signal that asked training to stop; where another process was asked,
    /// that of Ctrl-C.
    pub(crate) fn exit_code(&self) -> u8 {
        match self.code.load(Ordering::SeqCst) {
            0 => 128 + 2,
            code => code,
        }
    }

    /// Becomes true at the first signal.
    pub(crate) fn stop_flag(&self) -> &AtomicBool {
        &self.stop
    }

    /// Says that from here on a signal has to wait for the update in hand.
    pub(crate) fn training_begins(&self) {
        self.stage.store(TRAINING, Ordering::SeqCst);
    }

    /// Says that nothing remains that a signal would have to wait for: from here on the first one
    /// ends the program.
    pub(crate) fn training_is_saved(&self) {
        self.stage.store(SAVED, Ordering::SeqCst);
    }
}
