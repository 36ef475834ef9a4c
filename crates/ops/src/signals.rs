//! Signals of the system: tells if a signal is ignored, and keeps SIGXFSZ (a file exceeds its size
//! limit) from ending the process.

/// Whether the process ignores `signal` at present.
///
/// A process can be started with a signal ignored. For example, `nohup` starts a program with
/// SIGHUP ignored, so that the program outlives its terminal. A handler for SIGHUP would undo that,
/// so this function should be called before a handler is installed.
#[cfg(unix)]
pub fn is_ignored(signal: i32) -> bool {
    // SAFETY: the structure consists of integers and addresses, for which zeros are valid; the call
    // only fills it.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &raw mut action) == 0
            && action.sa_sigaction == libc::SIG_IGN
    }
}

/// Makes a write beyond the limit on file sizes (`ulimit -f`) fail with an error, as on a full
/// disk. Otherwise the signal SIGXFSZ would end the process.
pub fn survive_file_size_limit() {
    #[cfg(unix)]
    // SAFETY: the signal is ignored, so that no handler runs.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}
