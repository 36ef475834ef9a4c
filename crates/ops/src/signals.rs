//! What the process was told to do about signals, and one that it must not die of.

/// Whether the process was started with a signal ignored: `nohup` ignores SIGHUP so that a program
/// outlives its terminal, and a handler would undo that.
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

/// Lets a write beyond the limit on file sizes (`ulimit -f`, a quota) fail like one on a full disk,
/// with an error to report and act upon, instead of ending the process by SIGXFSZ.
pub fn survive_file_size_limit() {
    #[cfg(unix)]
    // SAFETY: no code runs for a signal that is ignored.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}
