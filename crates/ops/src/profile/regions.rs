//! Predicts the time of a training step on more threads. The prediction is computed from the
//! parallel regions of the step, which were measured on one thread.
//!
//! A region is a parallel loop: its tasks are divided among threads, which wait for each other at
//! the end. On one thread, it takes the sum of its tasks' times. On `n` threads, it takes the time
//! of the busiest thread. If the region has `k` equal tasks, the busiest thread has `⌈k / n⌉` of
//! them. Work outside of regions takes the same time on any number of threads (Amdahl 1967). So the
//! time of a step on, say, sixty-four cores can be computed from regions that were measured on a
//! single core. The prediction ignores memory bandwidth, so it is too optimistic if the cores have
//! to wait for memory.
//!
//! A region inside a task of another region counts as a part of that task.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::LocalKey;
use std::time::{Duration, Instant};

static ENABLED: AtomicBool = AtomicBool::new(false);
static STATE: Mutex<State> = Mutex::new(State { threads: Vec::new(), regions: BTreeMap::new() });

thread_local! {
    /// Name of the operation that this thread is executing.
    static OPERATION: Cell<&'static str> = const { Cell::new("other") };
    /// Whether this thread is currently in a measured region.
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Guard that restores the previous value of a thread-local cell when it is dropped, even by a
/// panic.
struct Restored<T: Copy + 'static>(&'static LocalKey<Cell<T>>, T);

impl<T: Copy + 'static> Restored<T> {
    /// Sets the cell to `value`.
    fn after(cell: &'static LocalKey<Cell<T>>, value: T) -> Self {
        Self(cell, cell.replace(value))
    }
}

impl<T: Copy + 'static> Drop for Restored<T> {
    fn drop(&mut self) {
        self.0.set(self.1);
    }
}

struct State {
    /// Numbers of threads whose time is predicted, as given to [`predict`].
    threads: Vec<usize>,
    regions: BTreeMap<&'static str, Regions>,
}

/// Measurements of the parallel regions of one operation, forward and backward pass together.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Regions {
    /// Number of regions; threads wait for each other once at the end of each region.
    pub count: u64,
    /// Total time in regions on one thread.
    pub time: Duration,
    /// Predicted total time in regions, for each number of threads given to [`predict`].
    pub predicted: Vec<Duration>,
}

/// Measurements of the regions of each operation, as returned by [`predicted`].
pub type Prediction = Vec<(&'static str, Regions)>;

/// Starts measuring regions from zero, and predicting their time for each number of threads in
/// `threads`; 0 threads count as 1.
///
/// The thread pool must have only one thread. With more threads, the time of a region would not be
/// the sum of its tasks' times.
pub fn predict(threads: &[usize]) {
    let mut state = lock();
    state.threads = threads.iter().map(|&threads| threads.max(1)).collect();
    state.regions.clear();
    ENABLED.store(true, Ordering::Relaxed);
}

/// Stops measuring regions and returns the measurements and predictions.
#[must_use]
pub fn predicted() -> Prediction {
    ENABLED.store(false, Ordering::Relaxed);
    std::mem::take(&mut lock().regions).into_iter().collect()
}

/// Runs `work`, and counts the regions in it under the operation `name`.
pub(super) fn within<R>(name: &'static str, work: impl FnOnce() -> R) -> R {
    let _before = Restored::after(&OPERATION, name);
    work()
}

/// Runs `work`, a parallel loop. For a number of threads, `longest` returns the share of all the
/// work that the busiest thread does.
pub(crate) fn region<R>(longest: impl Fn(usize) -> f64, work: impl FnOnce() -> R) -> R {
    let _claims = crate::claims::begin();
    if !ENABLED.load(Ordering::Relaxed) || IS_INSIDE.get() {
        return work();
    }
    let _inside = Restored::after(&IS_INSIDE, true);
    let start = Instant::now();
    let result = work();
    let time = start.elapsed();
    let State { threads, regions } = &mut *lock();
    let regions = regions.entry(OPERATION.get()).or_default();
    regions.count += 1;
    regions.time += time;
    regions.predicted.resize(threads.len(), Duration::ZERO);
    for (predicted, &threads) in regions.predicted.iter_mut().zip(&*threads) {
        *predicted += time.mul_f64(longest(threads).clamp(1.0 / threads as f64, 1.0));
    }
    result
}

/// Returns a function from the number of threads to the busiest thread's share of the work, for
/// `tasks` equal tasks.
pub(crate) fn even(tasks: usize) -> impl Fn(usize) -> f64 {
    move |threads| match tasks {
        0 => 1.0,
        tasks => tasks.div_ceil(threads) as f64 / tasks as f64,
    }
}

/// Returns a function from the number of threads to the busiest thread's share of the work, for
/// tasks of these sizes. Each task in turn is given to the thread that is free first.
pub(crate) fn longest_of<I: Iterator<Item = usize>>(
    sizes: impl Fn() -> I,
) -> impl Fn(usize) -> f64 {
    move |threads| {
        let mut busy = vec![0_usize; threads.max(1)];
        for size in sizes() {
            if let Some(first_free) = busy.iter_mut().min() {
                *first_free += size;
            }
        }
        let longest = busy.iter().max().copied().unwrap_or(0);
        let total: usize = busy.iter().sum();
        if total == 0 { 1.0 } else { longest as f64 / total as f64 }
    }
}

/// Locks the state. The lock is never poisoned in practice, because no thread panics while it holds
/// it.
fn lock() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::{IS_INSIDE, OPERATION, even, longest_of, predict, predicted, region, within};
    use std::panic::catch_unwind;

    #[test]
    fn the_thread_with_the_most_decides() {
        assert_eq!(even(8)(1), 1.0);
        assert_eq!(even(8)(4), 0.25);
        assert_eq!(even(8)(16), 0.125);
        assert_eq!(even(9)(8), 2.0 / 9.0);
        assert_eq!(even(0)(8), 1.0);
        let sizes = || [4, 1, 1, 1, 1].into_iter();
        assert_eq!(longest_of(sizes)(1), 1.0);
        assert_eq!(longest_of(sizes)(2), 0.5);
        assert_eq!(longest_of(sizes)(64), 0.5);
        assert_eq!(longest_of(|| [0; 3].into_iter())(2), 1.0);
    }

    #[test]
    fn regions_are_measured_after_a_panic() {
        predict(&[2]);
        let panicked =
            catch_unwind(|| within("panics", || region(even(2), || panic!("on purpose"))));
        assert!(panicked.is_err() && !IS_INSIDE.get() && OPERATION.get() == "other");
        within("goes on", || region(even(2), || region(even(3), || ())));
        let regions = predicted().into_iter().find(|one| one.0 == "goes on");
        assert_eq!(regions.map(|one| one.1.count), Some(1), "the inner region is a part");
        // No threads count as one.
        predict(&[0, 1]);
        within("without threads", || region(even(2), || ()));
        let regions = predicted().into_iter().find(|one| one.0 == "without threads");
        let predicted = regions.expect("a region").1.predicted;
        assert!(predicted.len() == 2 && predicted[0] == predicted[1], "{predicted:?}");
    }
}
