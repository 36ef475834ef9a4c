//! Finds out if this process was started with its standard output closed (`>&-`).
//!
//! If standard output is closed, Rust's runtime opens `/dev/null` in its place before `main`.
//! Otherwise a file that is opened later could get the file descriptor of standard output. Text
//! printed to `/dev/null` vanishes without an error. Only code that runs before Rust's runtime can
//! notice that standard output was closed. The function `look` below is such code: the dynamic
//! linker calls it before the runtime starts.

#[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
mod at_start {
    use std::sync::atomic::{AtomicBool, Ordering};

    static CLOSED: AtomicBool = AtomicBool::new(false);

    extern "C" fn look() {
        // SAFETY: the call reads the flags of a file descriptor, which can be closed.
        let flags = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) };
        CLOSED.store(flags == -1, Ordering::Relaxed);
    }

    /// The dynamic linker calls the functions whose addresses are in this section before `main`.
    // SAFETY: the section holds addresses of functions without arguments or results; `look` neither
    // allocates nor needs anything of Rust's runtime.
    #[used]
    #[unsafe(link_section = ".init_array")]
    static LOOK: extern "C" fn() = look;

    pub(super) fn was_closed() -> bool {
        CLOSED.load(Ordering::Relaxed)
    }
}

/// Whether standard output was closed when the process started; `false` on systems where this
/// cannot be determined.
pub fn was_closed_at_start() -> bool {
    #[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
    return at_start::was_closed();
    #[cfg(not(any(target_os = "linux", target_os = "android", target_os = "freebsd")))]
    return false;
}
