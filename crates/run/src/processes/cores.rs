//! Division of a machine's cores among its processes.
//!
//! If possible, all hardware threads of a core are given to the same process, and so are cores near
//! the same memory (NUMA node).

use std::num::NonZero;

use super::Place;

/// Number of cores that the system allows this process to use.
#[must_use]
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}

/// Binds the process at `place` to its share of the cores of this machine, and returns its number
/// of threads. `wanted`: number of threads of all processes on this machine together, or 0 for one
/// thread on each core. For a single process, returns `wanted` and binds nothing.
///
/// The binding does not change if there are fewer cores than processes. Nor does it change if the
/// launcher has already bound this process to only some of the cores that the processes may use.
/// This function must be called before other threads start, because only threads that start later
/// inherit the binding.
#[must_use]
pub fn take_share(place: &Place, wanted: usize) -> usize {
    let &Place { local_rank, local_size, can_be_bound, .. } = place;
    if local_size <= 1 {
        return wanted;
    }
    let threads = |available: usize| match wanted {
        0 => (available / local_size).max(1),
        wanted => (wanted / local_size).max(1),
    };
    let Some(allowed) = allowed().filter(|allowed| allowed.len() <= cores()) else {
        // Either the cores are unknown, or the process can run on any core but only has computing
        // time for some of them, as in a container. In both cases, no cores are chosen.
        return threads(cores());
    };
    // `mpirun`, `srun`, or a command such as `numactl` can bind each process to cores of its own.
    // Otherwise, this process has the same cores as the process that started it, or all cores of a
    // container, and all processes share these cores.
    let is_apart = can_be_bound || differs_from_parent();
    let of_all = if is_apart { of_group().or_else(online) } else { None };
    if let Some(of_all) = of_all.filter(|&of_all| allowed.len() < of_all) {
        return if wanted == 0 {
            bound_threads(allowed.len(), of_all, local_size)
        } else {
            threads(allowed.len())
        };
    }
    let own_cores = share(&allowed, local_rank, local_size);
    let pinned = own_cores.len() >= threads(allowed.len()) && stay_on(own_cores);
    if pinned && wanted == 0 { own_cores.len() } else { threads(allowed.len()) }
}

/// Number of threads of a process that its launcher has bound to `bound` of the `of_all` cores that
/// all `local_size` processes may use. Several processes can be bound to the same cores, for
/// example to all cores of one socket.
fn bound_threads(bound: usize, of_all: usize, local_size: usize) -> usize {
    bound.min(of_all / local_size).max(1)
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
    count(&std::fs::read_to_string("/sys/devices/system/cpu/online").ok()?)
}

/// Whether this process may use other cores than the process that started it; false if the system
/// does not say.
#[cfg(target_os = "linux")]
fn differs_from_parent() -> bool {
    let cores_of = |process: &str| -> Option<String> {
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
        let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
        Some(list.trim().to_owned())
    };
    let parent = cores_of(&std::os::unix::process::parent_id().to_string());
    parent.is_some_and(|parent| cores_of("self").is_some_and(|own| own != parent))
}

/// Number of cores of the control group of this process, such as that of a container or of a job;
/// `None` if the system does not say.
#[cfg(target_os = "linux")]
fn of_group() -> Option<usize> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    groups.lines().find_map(|line| {
        // Each line has a number, controllers and a path. Without controllers, the line is about
        // version 2 of control groups.
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?.trim_start_matches('/'));
        let (root, name) = match controllers {
            "" => ("/sys/fs/cgroup", "cpuset.cpus.effective"),
            _ if controllers.split(',').any(|one| one == "cpuset") => {
                ("/sys/fs/cgroup/cpuset", "cpuset.effective_cpus")
            }
            _ => return None,
        };
        // A group without a file of its own has the cores of the group around it. In a container,
        // the path can be one that only the host has.
        std::path::Path::new(path).ancestors().find_map(|group| {
            let file = std::path::Path::new(root).join(group).join(name);
            count(&std::fs::read_to_string(file).ok()?)
        })
    })
}

/// Number of cores in a list such as `0-3,8`.
#[cfg(target_os = "linux")]
fn count(list: &str) -> Option<usize> {
    let count = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(last.parse::<usize>().ok()?.checked_sub(first.parse().ok()?)? + 1)
    };
    list.trim().split(',').map(count).sum()
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
fn differs_from_parent() -> bool {
    false
}

#[cfg(not(target_os = "linux"))]
fn of_group() -> Option<usize> {
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
    fn processes_on_the_same_cores_do_not_all_take_them() {
        // Each of four processes has its own four cores, or they share those of two sockets.
        assert_eq!(bound_threads(4, 16, 4), 4);
        assert_eq!(bound_threads(8, 16, 4), 4);
        assert_eq!(bound_threads(2, 16, 4), 2);
        assert_eq!(bound_threads(1, 2, 4), 1);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn lists_of_cores_are_counted() {
        assert_eq!(count("0-3,8\n"), Some(5));
        assert_eq!(count("7"), Some(1));
        assert_eq!(count(""), None);
        assert!(of_group().is_none_or(|cores| cores >= allowed().expect("known").len()));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_system_tells_its_cores() {
        let allowed = allowed().expect("known");
        assert!((cores()..=online().expect("known")).contains(&allowed.len()), "{allowed:?}");
    }
}
