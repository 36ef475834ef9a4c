//! Limits that the system sets for the process, apart from memory.

/// Limit of the shell's `ulimit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// Number of files that are open at a time, `ulimit -n`.
    OpenFiles,
    /// Bytes of a file, `ulimit -f`.
    FileSize,
    /// Bytes of the address space, `ulimit -v`.
    Addresses,
}

impl Limit {
    /// Value of the limit; `None` if it is not set, or the system has no such limit.
    #[must_use]
    pub fn value(self) -> Option<u64> {
        #[cfg(unix)]
        {
            use rustix::process::{Resource, getrlimit};
            let resource = match self {
                Self::OpenFiles => Resource::Nofile,
                Self::FileSize => Resource::Fsize,
                Self::Addresses => Resource::As,
            };
            getrlimit(resource).current
        }
        #[cfg(not(unix))]
        None
    }
}
