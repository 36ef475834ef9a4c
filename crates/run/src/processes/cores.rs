//! Division of a machine's cores among its processes.
//!
//! A process gets cores that belong together: all threads of a core, and cores that are next to the
//! same memory.

use std::num::NonZero;

/// Number of cores that this process may use.
#[must_use]
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}

/// Binds process `local_rank` of the `local_size` processes on this machine to its share of the
/// cores, and returns its number of threads. `wanted` is the number of threads of all these
/// processes together; 0 means one for each core.
///
/// If there are fewer cores than processes, or cores have already been chosen for this process, its
/// binding does not change. This must be called before other threads start, because only threads
/// that start later inherit the binding.
#[must_use]
pub fn take_share(local_rank: usize, local_size: usize, wanted: usize) -> usize {
    if local_size <= 1 {
        return wanted;
    }
    let threads = |available: usize| match wanted {
        0 => (available / local_size).max(1),
        wanted => (wanted / local_size).max(1),
    };
    let Some(allowed) = allowed().filter(|allowed| allowed.len() <= cores()) else {
        // Either the cores are unknown, or the process may run on more cores than it may use at a
        // time, so none can be chosen.
        return threads(cores());
    };
    if allowed.len() < online().unwrap_or(allowed.len()) {
        // The process is bound already, so the cores that it may use belong to it alone.
        return if wanted == 0 { allowed.len().max(1) } else { threads(allowed.len()) };
    }
    let own_cores = share(&allowed, local_rank, local_size);
    let pinned = own_cores.len() >= threads(allowed.len()) && stay_on(own_cores);
    if pinned && wanted == 0 { own_cores.len() } else { threads(allowed.len()) }
}

/// Part of `cores` for process `rank` of `size`; empty if some process would get none.
fn share(cores: &[usize], rank: usize, size: usize) -> &[usize] {
    if cores.len() < size {
        return &[];
    }
    &cores[rank * cores.len() / size..(rank + 1) * cores.len() / size]
}

/// Cores that this thread may use, ordered so that cores that belong together are adjacent.
#[cfg(target_os = "linux")]
fn allowed() -> Option<Vec<usize>> {
    let set = rustix::thread::sched_getaffinity(None).ok()?;
    let mut cores: Vec<usize> =
        (0..rustix::thread::CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect();
    cores.sort_by_cached_key(|&core| {
        let fact = |name: &str| -> u64 {
            let path = format!("/sys/devices/system/cpu/cpu{core}/topology/{name}");
            let text = std::fs::read_to_string(path).unwrap_or_default();
            text.trim().parse().unwrap_or(0)
        };
        (fact("physical_package_id"), memory_of(core), fact("core_id"), core)
    });
    Some(cores)
}

/// Number of the memory nearest to a core.
#[cfg(target_os = "linux")]
fn memory_of(core: usize) -> usize {
    let Ok(entries) = std::fs::read_dir(format!("/sys/devices/system/cpu/cpu{core}")) else {
        return 0;
    };
    let number = |name: String| name.strip_prefix("node")?.parse().ok();
    let mut names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    names.find_map(number).unwrap_or(0)
}

/// Number of the machine's active cores.
#[cfg(target_os = "linux")]
fn online() -> Option<usize> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online").ok()?;
    let count = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(last.parse::<usize>().ok()?.checked_sub(first.parse().ok()?)? + 1)
    };
    text.trim().split(',').map(count).sum()
}

/// Binds this thread, and threads that it starts, to `cores`; returns whether the system did so.
#[cfg(target_os = "linux")]
fn stay_on(cores: &[usize]) -> bool {
    let mut set = rustix::thread::CpuSet::new();
    cores.iter().for_each(|&core| set.set(core));
    !cores.is_empty() && rustix::thread::sched_setaffinity(None, &set).is_ok()
}

#[cfg(not(target_os = "linux"))]
fn allowed() -> Option<Vec<usize>> {
    None
}

#[cfg(not(target_os = "linux"))]
fn online() -> Option<usize> {
    None
}

#[cfg(not(target_os = "linux"))]
fn stay_on(_cores: &[usize]) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_divided_without_rest() {
        let cores: Vec<usize> = (0..7).collect();
        let parts: Vec<&[usize]> = (0..3).map(|rank| share(&cores, rank, 3)).collect();
        assert_eq!(parts, [&[0, 1][..], &[2, 3], &[4, 5, 6]]);
        assert!(share(&cores, 0, 8).is_empty(), "one would have none");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_system_tells_its_cores() {
        let allowed = allowed().expect("known");
        assert!((cores()..=online().expect("known")).contains(&allowed.len()), "{allowed:?}");
    }
}
