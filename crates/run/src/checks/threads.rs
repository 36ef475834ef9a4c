//! Choice of the number of threads that compute: by the user, or else by the recipe (TOML file with
//! the settings of a training).

use std::error::Error;
use std::num::NonZero;
use std::sync::OnceLock;

use anyhow::{Context, Result, bail};

/// Largest number of threads that can be chosen on a machine with up to 16 cores.
const MOST_THREADS: usize = 64;

/// Set when the user has chosen the number of threads. Then the number in a recipe is ignored.
static CHOSEN: OnceLock<()> = OnceLock::new();

/// Sets the number of CPU threads for the whole process to `threads`, the choice of the user. From
/// then on, the number in a recipe is ignored. 0 means one thread for each core.
///
/// # Errors
/// See [`use_threads`].
pub fn choose_threads(threads: usize) -> Result<()> {
    size_pool("--threads", threads)?;
    let _ = CHOSEN.set(());
    Ok(())
}

/// Sets the number of CPU threads to `threads`, the number in a recipe, unless the user has chosen
/// a number; 0 means one thread for each core.
///
/// # Errors
/// When the number is too large, or the thread pool cannot be made.
pub fn use_threads(threads: usize) -> Result<()> {
    match CHOSEN.get() {
        Some(()) => Ok(()),
        None => size_pool("key `threads` =", threads),
    }
}

fn size_pool(origin: &str, threads: usize) -> Result<()> {
    // More threads than cores only wait for each other, and thousands take minutes to start.
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    let most = MOST_THREADS.max(4 * cores);
    if threads > most {
        bail!(
            "{origin} {threads}: must be at most {most}, since there are {cores} cores; 0 takes \
             one thread for each core"
        );
    }
    // In WebAssembly, there is one thread, and it cannot start others.
    if cfg!(target_family = "wasm") {
        return Ok(());
    }
    match rayon::ThreadPoolBuilder::new().num_threads(threads).build_global() {
        // A pool exists already. This is no error, because 0 asks for no particular number of
        // threads.
        Err(error) if threads == 0 && error.source().is_none() => Ok(()),
        made => made.with_context(|| {
            format!("{origin} {threads}: the thread pool cannot be made; is memory limited?")
        }),
    }
}
