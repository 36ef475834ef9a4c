//! Ctrl-C and SIGTERM: the first asks training to stop after the update in
//! hand, the second ends the program at once. Whatever is on disk by then is
//! whole, since nothing is written in place.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};

use crate::error::EXIT_INTERRUPTED;

/// What the signals have asked for.
#[derive(Debug)]
pub(crate) struct Signals {
    stop: Arc<AtomicBool>,
    trained: Arc<AtomicBool>,
}

impl Signals {
    /// Installs the handler.
    ///
    /// # Errors
    /// When the system refuses it.
    pub(crate) fn install() -> Result<Self> {
        let signals = Self { stop: Arc::default(), trained: Arc::default() };
        let (stop, trained) = (Arc::clone(&signals.stop), Arc::clone(&signals.trained));
        ctrlc::set_handler(move || {
            let complete = trained.load(Ordering::SeqCst);
            if complete {
                eprintln!("\nstopped; the training is complete and saved");
            }
            if complete || stop.swap(true, Ordering::SeqCst) {
                std::process::exit(i32::from(EXIT_INTERRUPTED));
            }
            eprintln!("\nstopping after this update and saving a checkpoint; again to stop at once");
        })
        .context("cannot install the signal handler")?;
        Ok(signals)
    }

    /// Becomes true at the first signal.
    pub(crate) fn stop_flag(&self) -> &AtomicBool {
        &self.stop
    }

    /// Says that nothing remains that a signal would have to wait for: from here on the first one ends the program.
    pub(crate) fn training_is_saved(&self) {
        self.trained.store(true, Ordering::SeqCst);
    }
}
