//! How many threads compute.

use std::error::Error;
use std::num::NonZero;
use std::sync::OnceLock;

use anyhow::{Context, Result, bail};

/// Threads that any machine may be asked for.
const MOST_THREADS: usize = 64;

/// What this process was told, which recipes do not change.
static CHOSEN: OnceLock<()> = OnceLock::new();

/// Sizes the thread pool of the CPU as whoever started the process wants it, whatever the recipes
/// say that it reads; 0 leaves it at one thread a core.
///
/// # Errors
/// As for [`use_threads`].
pub fn choose_threads(threads: usize) -> Result<()> {
    size_pool("--threads", threads)?;
    let _ = CHOSEN.set(());
    Ok(())
}

/// Sizes the thread pool of the CPU as a recipe says; 0 leaves it at one thread a core.
///
/// # Errors
/// When the pool cannot be made.
pub fn use_threads(threads: usize) -> Result<()> {
    match CHOSEN.get() {
        Some(()) => Ok(()),
        None => size_pool("key `threads` =", threads),
    }
}

fn size_pool(origin: &str, threads: usize) -> Result<()> {
    // More than there are cores only wait for each other, and thousands take minutes to start.
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    let most = MOST_THREADS.max(4 * cores);
    if threads > most {
        bail!(
            "{origin} {threads}: at most {most}, since there are {cores} cores; 0 takes one for \
             each"
        );
    }
    match rayon::ThreadPoolBuilder::new().num_threads(threads).build_global() {
        // There is one already, and no other is asked for.
        Err(error) if threads == 0 && error.source().is_none() => Ok(()),
        made => made.with_context(|| {
            format!("{origin} {threads}: the thread pool cannot be made; is memory limited?")
        }),
    }
}
