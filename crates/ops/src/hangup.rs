//! The signal of a terminal that is closed.

/// Runs `install`, which sets handlers of signals, and leaves SIGHUP ignored if it was.
///
/// `nohup` starts a process with it ignored, so that it outlives its terminal; a library that
/// handles every signal that ends a process undoes that.
#[cfg(unix)]
pub fn keep_ignored<R>(install: impl FnOnce() -> R) -> R {
    // SAFETY: the structure is plain integers and addresses, for which zeros are valid; the call
    // only fills it.
    let was_ignored = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGHUP, std::ptr::null(), &raw mut action) == 0
            && action.sa_sigaction == libc::SIG_IGN
    };
    let result = install();
    if was_ignored {
        // SAFETY: no code runs for a signal that is ignored.
        unsafe { libc::signal(libc::SIGHUP, libc::SIG_IGN) };
    }
    result
}

/// Runs `install`: this system has no such signal.
#[cfg(not(unix))]
pub fn keep_ignored<R>(install: impl FnOnce() -> R) -> R {
    install()
}
