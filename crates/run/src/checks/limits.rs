//! Limits that the system sets for the process, apart from memory.

/// Limit on a process that the shell sets with `ulimit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// Number of files that are open at a time, `ulimit -n`.
    OpenFiles,
    /// Size of a file in bytes, `ulimit -f`.
    FileSize,
    /// Size of the address space in bytes, `ulimit -v`.
    Addresses,
}

impl Limit {
    /// Value of the limit for this process; `None` if it is unlimited, or the system has no such
    /// limit.
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
