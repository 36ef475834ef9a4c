//! Signals: those that the process was started with ignored, and one that must not kill it.

/// True if the process was started with `signal` ignored. For example, `nohup` ignores SIGHUP so
/// that a program outlives its terminal, and a handler for the signal would undo this.
#[cfg(unix)]
pub fn is_ignored(signal: i32) -> bool {
    // SAFETY: the structure is plain integers and addresses, for which zeros are valid; the call
    // only fills it.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &raw mut action) == 0
            && action.sa_sigaction == libc::SIG_IGN
    }
}

/// Makes a write beyond the limit on file sizes (`ulimit -f`, a quota) fail with an error, as on a
/// full disk, instead of ending the process by SIGXFSZ.
pub fn survive_file_size_limit() {
    #[cfg(unix)]
    // SAFETY: no code runs for an ignored signal.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}
