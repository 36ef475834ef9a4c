//! How many threads compute.

use std::num::NonZero;

use anyhow::{Context, Result, bail};

/// Threads that any machine may be asked for.
const MOST_THREADS: usize = 64;

/// Sizes the thread pool of the CPU; 0 leaves it at one thread a core.
///
/// # Errors
/// When the pool cannot be made.
pub fn use_threads(threads: usize) -> Result<()> {
    if threads == 0 {
        return Ok(());
    }
    // More than there are cores only wait for each other, and thousands take minutes to start.
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    let most = MOST_THREADS.max(4 * cores);
    if threads > most {
        bail!(
            "key `threads` = {threads}: at most {most}, since there are {cores} cores; 0 takes one for each"
        );
    }
    rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build_global()
        .with_context(|| format!("key `threads` = {threads}: the thread pool cannot be made"))
}
