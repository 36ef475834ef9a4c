//! Memory as the system reports it: how much the process uses, and how much is available.

use std::fs;
use std::path::Path;

/// Largest memory that the process has used so far, in bytes; `None` if the system does not report
/// it.
pub fn peak() -> Option<u64> {
    status("VmHWM:")
}

/// Sets [`peak`] to the memory that is used now, if the system supports that.
pub(super) fn forget_peak() {
    // Writing 5 resets only the peak (proc(5)).
    let _ = fs::write("/proc/self/clear_refs", "5");
}

/// Memory that the process uses now, in bytes; `None` if the system does not report it.
pub(super) fn resident() -> Option<u64> {
    status("VmRSS:")
}

/// Memory of the machine, in bytes; `None` if the system does not report it.
pub fn total() -> Option<u64> {
    figure("/proc/meminfo", "MemTotal:")
}

/// Memory in bytes that this process can still get without swapping. The limits of its container,
/// of a batch system and of `ulimit -v` are respected. `None` if no limit and no free memory is
/// known.
pub fn available() -> Option<u64> {
    let free = figure("/proc/meminfo", "MemAvailable:");
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let allowed = left_to_groups(&groups, Path::new("/sys/fs/cgroup"));
    free.into_iter().chain(allowed).chain(left_of_addresses()).min()
}

/// Memory in bytes that `ulimit -v`, the limit of the address space, still leaves: a third of the
/// addresses that are not requested yet, or are requested but unused. Only a third counts, because
/// the allocator requests more addresses than it uses, and keeps freed memory during training.
/// `None` without a limit.
#[cfg(target_os = "linux")]
fn left_of_addresses() -> Option<u64> {
    use rustix::process::{Resource, getrlimit};
    let limit = getrlimit(Resource::As).current?;
    let reserved = unused(&fs::read_to_string("/proc/self/smaps").unwrap_or_default());
    Some(limit.saturating_sub(status("VmSize:")?.saturating_sub(reserved)) / 3)
}

/// Address space in bytes that an allocator has reserved but not used: the part of large mappings
/// without a file that is not in memory. `mappings` is the content of /proc/self/smaps.
#[cfg(target_os = "linux")]
fn unused(mappings: &str) -> u64 {
    /// Size in bytes of the smallest mapping that counts; mappings for stacks and the like are
    /// smaller.
    const LARGE: u64 = 32 << 20;
    let (mut unused, mut is_anonymous, mut size) = (0, false, 0);
    for line in mappings.lines() {
        let mut fields = line.split_ascii_whitespace();
        let kibibytes = |fields: &mut std::str::SplitAsciiWhitespace<'_>| -> u64 {
            fields.next().and_then(|number| number.parse().ok()).unwrap_or(0)
        };
        match fields.next() {
            Some("Size:") => size = 1024 * kibibytes(&mut fields),
            Some("Rss:") if is_anonymous && size >= LARGE => {
                unused += size.saturating_sub(1024 * kibibytes(&mut fields));
            }
            // This line begins a mapping. Its fields are addresses, permissions, offset, device,
            // inode and, if the mapping has a file, its path.
            Some(first) if !first.ends_with(':') => is_anonymous = fields.count() == 4,
            _ => {}
        }
    }
    unused
}

#[cfg(not(target_os = "linux"))]
fn left_of_addresses() -> Option<u64> {
    None
}

/// Memory in bytes that the control groups of a process leave to it: the minimum over its groups
/// and their ancestors; `None` if no group has a limit. `groups` is the content of
/// /proc/self/cgroup. Versions 1 and 2 of the interface are supported; `root` is the folder where
/// the interface is mounted.
fn left_to_groups(groups: &str, root: &Path) -> Option<u64> {
    let mut left = None;
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) =
            (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let (mounted, most, used, cached) = if controllers.is_empty() {
            (root.to_owned(), "memory.max", "memory.current", "inactive_file ")
        } else if controllers.split(',').any(|controller| controller == "memory") {
            (
                root.join("memory"),
                "memory.limit_in_bytes",
                "memory.usage_in_bytes",
                "total_inactive_file ",
            )
        } else {
            continue;
        };
        // In a container, the path may be a path on the host. The container then has no such
        // folder, and its own group is mounted as the root.
        let path = path.trim_start_matches('/');
        for group in Path::new(path).ancestors().map(|path| mounted.join(path)) {
            let number =
                |name: &str| fs::read_to_string(group.join(name)).ok()?.trim().parse::<u64>().ok();
            let (Some(most), Some(used)) = (number(most), number(used)) else { continue };
            // Pages of files that the system caches count as used, but the system frees them when
            // memory is needed.
            let statistics = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
            let cached = statistics
                .lines()
                .find_map(|line| line.strip_prefix(cached)?.trim().parse::<u64>().ok());
            let left_here = most.saturating_sub(used.saturating_sub(cached.unwrap_or(0)));
            left = Some(left.map_or(left_here, |least: u64| least.min(left_here)));
        }
    }
    left
}

fn status(key: &str) -> Option<u64> {
    figure("/proc/self/status", key)
}

/// Value of `key` in the file `path` of Linux's process file system, converted from kB to bytes;
/// `None` if there is no such file or key, as on other systems.
fn figure(path: &str, key: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_groups_limit_the_memory() {
        let folder = tempfile::tempdir().expect("folder");
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().expect("parent")).expect("folder");
            fs::write(path, text).expect("file");
        };
        let left = |groups: &str| left_to_groups(groups, folder.path());
        assert_eq!(left("0::/job/step"), None);
        write("job/step/memory.max", "max\n");
        write("job/step/memory.current", "5000\n");
        assert_eq!(left("0::/job/step"), None, "a group without a limit");
        write("job/memory.max", "10000\n");
        write("job/memory.current", "7000\n");
        assert_eq!(left("0::/job/step"), Some(3000), "the group that holds it has one");
        write("job/memory.stat", "anon 4000\ninactive_file 2000\nactive_file 1000\n");
        assert_eq!(left("0::/job/step\n"), Some(5000));
        write("job/step/memory.max", "5500");
        assert_eq!(left("0::/job/step\n"), Some(500));
        // Version 1 of the interface, in a container where its own group is mounted as the root.
        write("memory/memory.limit_in_bytes", "900\n");
        write("memory/memory.usage_in_bytes", "200\n");
        assert_eq!(left("5:cpu,cpuacct:/x\n4:memory:/docker/0123\n"), Some(700));
        assert_eq!(left("nonsense"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn what_is_reserved_and_not_used_counts_as_free() {
        let mapping = |file: &str, size: u64, resident: u64| {
            format!(
                "7f1c00000000-7f1c08000000 rw-p 00000000 00:00 0 {file}\nSize: {size} \
                 kB\nKernelPageSize: 4 kB\nRss: {resident} kB\nVmFlags: rd wr\n"
            )
        };
        let text = mapping("", 131_072, 1000)
            + &mapping("/lib/libc.so", 65_536, 0)
            + &mapping("", 8192, 0);
        assert_eq!(unused(&text), (131_072 - 1000) << 10);
        assert_eq!(unused("nonsense"), 0);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_system_says_how_much_memory_there_is() {
        let (now, most) = (resident().expect("resident"), peak().expect("peak"));
        assert!(now > 1 << 20 && most >= now, "{now} {most}");
        assert!(available().expect("available") > 1 << 20);
    }
}
