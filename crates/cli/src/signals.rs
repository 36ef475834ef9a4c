//! Signals that ask the process to end: orders (Ctrl-C, SIGTERM, SIGHUP), and warnings of batch
//! systems that they will end the process later (SIGUSR1, SIGUSR2, SIGXCPU).
//!
//! The first signal asks training to stop as soon as possible and to save a checkpoint. A second
//! order ends the program at once; a second warning is ignored. An order that follows a warning is
//! the first order, and does not interrupt the saving: batch systems send a warning, and then
//! SIGTERM. Before training begins and after it is complete there is nothing to wait for, and the
//! first signal ends the program. Files on disk are then complete, because nothing is written in
//! place.

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

/// Whether a handler has received an order.
static IS_ORDERED: AtomicBool = AtomicBool::new(false);

/// Returns true if a handler of this process has received an order.
pub(crate) fn is_ordered() -> bool {
    IS_ORDERED.load(Ordering::SeqCst)
}

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

/// What a signal means, given the signals that came before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Request {
    /// Nothing: the signal belongs to the same event as the last one, or repeats a warning.
    Nothing,
    /// Work should stop as soon as possible. This is the first signal.
    Stop,
    /// Work that is stopping should go on to stop. This is the first order after a warning.
    StopStill,
    /// The process should end at once.
    End,
}

/// The signals that have been received.
#[derive(Debug, Default)]
pub(crate) struct Received {
    /// Time of the last signal that had a meaning; `None` before the first signal.
    last: Option<Instant>,
    /// Whether one of the signals was an order.
    is_ordered: bool,
}

impl Received {
    /// Returns the meaning of `signal`, which came at the time `now`.
    pub(crate) fn request(&mut self, signal: Signal, now: Instant) -> Request {
        let was_ordered = self.is_ordered;
        self.is_ordered |= !signal.is_warning;
        let request = match self.last {
            None => Request::Stop,
            Some(_) if signal.is_warning => return Request::Nothing,
            Some(last) if now.duration_since(last) < ONE_SIGNAL => return Request::Nothing,
            Some(_) if was_ordered => Request::End,
            Some(_) => Request::StopStill,
        };
        self.last = Some(now);
        request
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
            IS_ORDERED.fetch_or(!is_warning, Ordering::SeqCst);
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
    let order = move || {
        IS_ORDERED.store(true, Ordering::SeqCst);
        handle(Signal { number: 2, is_warning: false });
    };
    ctrlc::set_handler(order).context("the system does not let signals be handled")
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
        let (code, folder) = (Arc::clone(&self.code), folder.to_owned());
        let (follows, mut received) = (self.follows, Received::default());
        on_signal(move |signal| {
            let request = received.request(signal, Instant::now());
            let stage = stage.load(Ordering::SeqCst);
            match request {
                Request::Nothing => return,
                Request::StopStill if stage == TRAINING => {
                    if !follows {
                        say("\nstill stopping and saving a checkpoint; again to stop at once");
                    }
                    return;
                }
                Request::Stop if follows || stage == TRAINING => {
                    code.store(signal.exit_code(), Ordering::SeqCst);
                    stop.store(true, Ordering::SeqCst);
                    if !follows {
                        say("\nstopping and saving a checkpoint; again to stop at once");
                    }
                    return;
                }
                _ if follows => {
                    say_farewell();
                    signal.end();
                }
                _ => {}
            }
            let run = quoted(&folder);
            let message = match stage {
                PREPARING => {
                    format!("stopped before the first update; continue with: taper resume {run}")
                }
                SAVED => format!(
                    "stopped; the training is complete and saved, and its test is made by: taper \
                     resume {run}"
                ),
                _ => format!("stopped; continue from the last checkpoint with: taper resume {run}"),
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the meanings of signals, each given by its time in milliseconds and by whether it is
    /// a warning.
    fn requests(signals: &[(u64, bool)]) -> Vec<Request> {
        let (mut received, begin) = (Received::default(), Instant::now());
        let request = |&(time, is_warning): &(u64, bool)| {
            let signal = Signal { number: 15, is_warning };
            received.request(signal, begin + Duration::from_millis(time))
        };
        signals.iter().map(request).collect()
    }

    #[test]
    fn the_first_order_after_a_warning_does_not_end_the_program() {
        use Request::{End, Nothing, Stop, StopStill};
        let (order, warning) = (false, true);
        assert_eq!(requests(&[(0, order), (400, order), (900, order)]), [Stop, Nothing, End]);
        let repeated = [(0, warning), (1000, warning), (2000, order), (3000, warning)];
        assert_eq!(requests(&repeated), [Stop, Nothing, StopStill, Nothing]);
        let repeated = [(0, warning), (2000, order), (2400, order), (2600, order)];
        assert_eq!(requests(&repeated), [Stop, StopStill, Nothing, End]);
        // An order at the time of the warning is the first order.
        assert_eq!(requests(&[(0, warning), (100, order), (800, order)]), [Stop, Nothing, End]);
    }
}
