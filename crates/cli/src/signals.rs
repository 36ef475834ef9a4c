//! Ctrl-C and SIGTERM: the first asks training to stop after the update in
//! hand, the second ends the program at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};

use crate::error::EXIT_INTERRUPTED;

/// Installs the handler; the flag becomes true at the first signal.
///
/// # Errors
/// When the system refuses the handler.
pub(crate) fn stop_flag() -> Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&flag);
    ctrlc::set_handler(move || {
        if seen.swap(true, Ordering::SeqCst) {
            std::process::exit(i32::from(EXIT_INTERRUPTED));
        }
        eprintln!("\nstopping after this update and saving a checkpoint; again to stop at once");
    })
    .context("cannot install the signal handler")?;
    Ok(flag)
}
