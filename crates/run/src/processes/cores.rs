//! Division of a machine's cores among its processes.
//!
//! If possible, all hardware threads of a core are given to the same process, and so are cores near
//! the same memory (NUMA node).

use std::num::NonZero;

/// Number of cores that the system allows this process to use.
#[must_use]
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}

/// Binds process `local_rank` of the `local_size` processes on this machine to its share of the
/// cores, and returns its number of threads. `wanted`: number of threads of all these processes
/// together, or 0 for one thread on each core. For a single process, returns `wanted` and binds
/// nothing.
///
/// If there are fewer cores than processes, or the process is already bound to some of the
/// machine's cores, the binding does not change. This must be called before other threads start,
/// because only threads that start later inherit the binding.
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
        // Either the cores are unknown, or the process can run on any core but only has computing
        // time for some of them, as in a container. Then no cores are chosen.
        return threads(cores());
    };
    if allowed.len() < online().unwrap_or(allowed.len()) {
        // The process is bound already, so its cores are not divided further.
        return if wanted == 0 { allowed.len().max(1) } else { threads(allowed.len()) };
    }
    let own_cores = share(&allowed, local_rank, local_size);
    let pinned = own_cores.len() >= threads(allowed.len()) && stay_on(own_cores);
    if pinned && wanted == 0 { own_cores.len() } else { threads(allowed.len()) }
}

/// Part of `cores` for the process `rank` of `size` processes; empty if there are fewer cores than
/// processes.
fn share(cores: &[usize], rank: usize, size: usize) -> &[usize] {
    if cores.len() < size {
        return &[];
    }
    &cores[rank * cores.len() / size..(rank + 1) * cores.len() / size]
}

/// Indices of the cores on which this thread is allowed to run. Threads of one core, and cores near
/// the same memory, are adjacent.
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

/// Index of the memory (NUMA node) nearest to a core.
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

/// Binds this thread, and threads that it starts later, to `cores`. Returns whether the system has
/// done so.
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
