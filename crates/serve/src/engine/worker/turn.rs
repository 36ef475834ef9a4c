//! Work between two steps of a search: lighter work goes first, and work without a waiting client
//! is dropped. The queue of a run has several lanes, each for work of similar weight (estimated
//! cost).

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use taper_decoding::Control;

use super::Worker;
use crate::engine::handlers::Handlers;
use crate::engine::queue::LANES;
use crate::engine::work::Job;

/// Ratio of the time for work of a lighter lane to the time for heavier work after it. After work
/// of a lighter lane has gone first and has taken the time t, no more work of that lane goes first
/// for the time t / `REST`. So heavy work makes progress under any amount of light work.
const REST: u32 = 4;

/// Pauses of a search, in which requests of lighter lanes of the queue go first. In a pause, the
/// thread of the search itself answers these requests, and then returns to its search.
pub(super) struct Pauses<'w> {
    worker: &'w Worker,
    handlers: &'w Handlers<'w>,
    lane: usize,
    given: Mutex<Given>,
}

/// Time spent on lighter work, and the times at which lanes may go first again.
#[derive(Debug, Default)]
struct Given {
    time: Duration,
    /// Time at which each lane may go first again; `None` if it may at once.
    again: [Option<Instant>; LANES],
}

impl<'w> Pauses<'w> {
    /// Makes the pauses of a search for work of `lane`.
    pub(super) fn new(worker: &'w Worker, handlers: &'w Handlers<'w>, lane: usize) -> Self {
        Self { worker, handlers, lane, given: Mutex::default() }
    }

    /// Answers lighter work, if there is any. Meanwhile other threads of the same search also wait
    /// here, so that all cores are free for the lighter work.
    pub(super) fn pause(&self) {
        if !self.worker.queue.has_lighter(self.lane) {
            return;
        }
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        for lane in 0..self.lane {
            let begun = Instant::now();
            if given.again[lane].is_some_and(|again| begun < again) {
                continue;
            }
            let jobs = self.worker.queue.take(lane, self.worker.limits.batch);
            if jobs.is_empty() {
                continue;
            }
            self.worker.answer(self.handlers, lane, jobs);
            let time = begun.elapsed();
            given.time += time;
            given.again[lane] = Some(Instant::now() + time / REST);
        }
    }

    /// Returns the time spent on lighter work so far.
    pub(super) fn given(&self) -> Duration {
        self.given.lock().unwrap_or_else(PoisonError::into_inner).time
    }
}

/// [`Control`] of a search for a group of jobs. It addresses a job by its index in the group.
pub(super) struct Turn<'w> {
    pauses: &'w Pauses<'w>,
    jobs: &'w [Job],
    /// Whether each job was dropped.
    dropped: Vec<AtomicBool>,
}

impl<'w> Turn<'w> {
    pub(super) fn new(pauses: &'w Pauses<'w>, jobs: &'w [Job]) -> Self {
        Self { pauses, jobs, dropped: jobs.iter().map(|_| AtomicBool::new(false)).collect() }
    }

    /// Returns, for each job, whether the search was told to drop it because its client has left.
    pub(super) fn dropped(&self) -> Vec<bool> {
        self.dropped.iter().map(|dropped| dropped.load(Ordering::Relaxed)).collect()
    }
}

impl fmt::Debug for Turn<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Turn").field("jobs", &self.jobs.len()).finish_non_exhaustive()
    }
}

impl Control for Turn<'_> {
    fn between_steps(&self) {
        self.pauses.pause();
    }

    fn is_cancelled(&self, job: usize) -> bool {
        let Some((job, dropped)) = self.jobs.get(job).zip(self.dropped.get(job)) else {
            return false;
        };
        let is_abandoned = job.is_abandoned();
        if is_abandoned {
            dropped.store(true, Ordering::Relaxed);
        }
        is_abandoned
    }
}
