//! Ctrl-C, SIGTERM and SIGHUP: the first asks training to stop after the update in
//! hand, the second ends the program at once. Before training begins and when
//! it is complete there is nothing to wait for, and the first does. Whatever is
//! on disk by then is whole, since nothing is written in place.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use taper_ops::hangup;

use crate::error::EXIT_INTERRUPTED;
use crate::text::say;
use taper_run::folder::RunLock;

/// Signals this close to each other are one: `timeout` signals its process and then the group that
/// it is in, a shell passes on to its processes what a closed terminal sends to them too, and none
/// of it is impatience.
const ONE_SIGNAL: Duration = Duration::from_millis(500);

/// Calls `handle`, on a thread of its own, for every signal that asks the process to end. One that
/// it was started to ignore (`nohup`) is no such signal.
///
/// # Errors
/// When the system refuses.
pub(crate) fn on_signal(handle: impl FnMut() + Send + 'static) -> Result<()> {
    hangup::keep_ignored(|| ctrlc::set_handler(handle)).context("cannot install the signal handler")
}

/// Ends the process from a handler of signals.
pub(crate) fn end() -> ! {
    std::process::exit(i32::from(EXIT_INTERRUPTED))
}

/// What the signals have asked for.
#[derive(Debug)]
pub(crate) struct Signals {
    stop: Arc<AtomicBool>,
    /// How far the run has come: one of the numbers below.
    stage: Arc<AtomicU8>,
}

const PREPARING: u8 = 0;
const TRAINING: u8 = 1;
const SAVED: u8 = 2;

impl Signals {
    /// Nothing asked for yet, and nothing that would notice.
    pub(crate) fn new() -> Self {
        Self { stop: Arc::default(), stage: Arc::new(AtomicU8::new(PREPARING)) }
    }

    /// Installs the handler for the run in `folder`, of which this process has the lock.
    ///
    /// # Errors
    /// When the system refuses it.
    pub(crate) fn install(&self, folder: &Path) -> Result<()> {
        let (stop, stage) = (Arc::clone(&self.stop), Arc::clone(&self.stage));
        let (folder, mut last) = (folder.to_owned(), None::<Instant>);
        on_signal(move || {
            if last.is_some_and(|last| last.elapsed() < ONE_SIGNAL) {
                return;
            }
            last = Some(Instant::now());
            let run = folder.display();
            let message = match stage.load(Ordering::SeqCst) {
                PREPARING => {
                    format!("stopped before the first update; continue with: taper resume {run}")
                }
                SAVED => format!(
                    "stopped; the training is complete and saved, and its test is made by: taper resume {run}"
                ),
                _ if stop.swap(true, Ordering::SeqCst) => {
                    format!("stopped; continue from the last checkpoint with: taper resume {run}")
                }
                _ => {
                    say(
                        "\nstopping after this update and saving a checkpoint; again to stop at once",
                    );
                    return;
                }
            };
            say(&format!("\n{message}"));
            RunLock::sign_off(&folder);
            end();
        })
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
