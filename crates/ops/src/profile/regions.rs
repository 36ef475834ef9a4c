//! What more threads would give: the parallel regions of a step, and a model of their time.
//!
//! A region is a loop whose tasks threads share, and then wait for each other. On one thread it
//! takes as long as its tasks together. On `n` threads it takes as long as the thread that has the
//! most to do: with `k` equal tasks, `⌈k / n⌉` of them. What is in no region takes as long on any
//! number of threads (Amdahl 1967). So a step's time on sixty-four cores follows from its regions,
//! measured on a single one, wherever memory is fast enough for all of them: the model knows of no
//! bandwidth.
//!
//! A region within a task of another one is part of that task.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

static ENABLED: AtomicBool = AtomicBool::new(false);
static STATE: Mutex<State> = Mutex::new(State { threads: Vec::new(), regions: BTreeMap::new() });

thread_local! {
    /// The operation that this thread is in.
    static OPERATION: Cell<&'static str> = const { Cell::new("other") };
    /// Whether this thread is in a region.
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
}

struct State {
    /// For which numbers of threads the model is asked.
    threads: Vec<usize>,
    regions: BTreeMap<&'static str, Regions>,
}

/// The parallel regions of one operation, forward and backward together.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Regions {
    /// How often threads meet.
    pub count: u64,
    /// Time in regions on one thread.
    pub time: Duration,
    /// The same on each of the numbers of threads, by the model.
    pub predicted: Vec<Duration>,
}

/// What [`predicted`] returns: the regions of each operation.
pub type Prediction = Vec<(&'static str, Regions)>;

/// Starts to measure regions, from zero, and to predict their time for each number of `threads`.
///
/// The pool must have one thread: on more, a region's time is not that of its tasks together.
pub fn predict(threads: &[usize]) {
    let mut state = lock();
    state.threads = threads.to_vec();
    state.regions.clear();
    ENABLED.store(true, Ordering::Relaxed);
}

/// Stops measuring regions and returns them.
#[must_use]
pub fn predicted() -> Prediction {
    ENABLED.store(false, Ordering::Relaxed);
    std::mem::take(&mut lock().regions).into_iter().collect()
}

/// Runs `work`; regions within it belong to the operation `name`.
pub(super) fn within<R>(name: &'static str, work: impl FnOnce() -> R) -> R {
    let before = OPERATION.replace(name);
    let result = work();
    OPERATION.set(before);
    result
}

/// Runs the loop `work`, whose tasks threads share. `longest` gives, for a number of threads, the
/// share of all its work that falls to the thread with the most.
pub(crate) fn region<R>(longest: impl Fn(usize) -> f64, work: impl FnOnce() -> R) -> R {
    crate::claims::begin();
    if !ENABLED.load(Ordering::Relaxed) || IS_INSIDE.replace(true) {
        return work();
    }
    let start = Instant::now();
    let result = work();
    let time = start.elapsed();
    IS_INSIDE.set(false);
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

/// `tasks` equal ones.
pub(crate) fn even(tasks: usize) -> impl Fn(usize) -> f64 {
    move |threads| match tasks {
        0 => 1.0,
        tasks => tasks.div_ceil(threads) as f64 / tasks as f64,
    }
}

/// Tasks of the given sizes: each thread that is free takes the next one.
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

/// No thread panics while it holds the lock.
fn lock() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::{even, longest_of};

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
}
