//! What happens between two steps of a search: lighter work goes first, and what nobody waits for
//! any more is dropped.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use taper_decoding::Control;

use super::queue::LANES;
use super::work::Job;
use super::worker::{Service, Worker};

/// Of the time that lighter work has taken, the part that passes before the next of its lane: what
/// is heavy gets on however much that is light there is.
const REST: u32 = 4;

/// Lets work of lighter lanes go first. What is taken in a pause is answered on the spot, by the
/// thread that pauses, whose own search waits on its stack.
pub(super) struct Pauses<'w> {
    worker: &'w Worker,
    service: &'w dyn Service,
    lane: usize,
    given: Mutex<Given>,
}

/// What lighter work was given.
#[derive(Debug, Default)]
struct Given {
    time: Duration,
    /// When the next of each lane may go first.
    again: [Option<Instant>; LANES],
}

impl<'w> Pauses<'w> {
    /// For work of `lane`.
    pub(super) fn new(worker: &'w Worker, service: &'w dyn Service, lane: usize) -> Self {
        Self { worker, service, lane, given: Mutex::default() }
    }

    /// Answers what is lighter, if there is any. Several threads of one search wait for each other
    /// here: the cores are for the lighter work.
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
            self.worker.answer(self.service, lane, jobs);
            let time = begun.elapsed();
            given.time += time;
            given.again[lane] = Some(Instant::now() + time / REST);
        }
    }

    /// The time that lighter work was given so far.
    pub(super) fn given(&self) -> Duration {
        self.given.lock().unwrap_or_else(PoisonError::into_inner).time
    }
}

/// The control of a search for a group of jobs, which it knows by their places.
pub(super) struct Turn<'w> {
    pauses: &'w Pauses<'w>,
    jobs: &'w [Job],
    /// Which of them were dropped.
    dropped: Vec<AtomicBool>,
}

impl<'w> Turn<'w> {
    pub(super) fn new(pauses: &'w Pauses<'w>, jobs: &'w [Job]) -> Self {
        Self { pauses, jobs, dropped: jobs.iter().map(|_| AtomicBool::new(false)).collect() }
    }

    /// For each job whether a search has dropped it.
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
