//! Reads how much memory a process uses.

use std::fs;

/// Returns the resident memory of a process in bytes; `None` on systems that do not report it.
/// `process` is the process id, or `self` for this process.
pub(crate) fn resident_memory(process: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}
