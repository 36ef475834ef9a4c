//! Queue of the work of a run (a trained model). It has several lanes, each for work of similar
//! weight (estimated cost).
//!
//! **Decision.** Light work never waits for the end of heavy work: between two steps, a search lets
//! work in all lighter lanes go first. And waiting heavy work does not count when the server
//! decides whether the queue is too full for light work. The alternative is a single search that
//! requests enter and leave at any step. It would have to combine requests with different settings.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::work::Job;

/// Number of lanes, the lightest first.
pub(super) const LANES: usize = 5;

/// Largest weight of work in the first lane. The limit of each further lane is four times that of
/// the lane before it, and the last lane has no limit.
const LIGHT: usize = 4;

/// Returns the lane for work of a weight.
pub(super) fn lane_of(weight: usize) -> usize {
    (0..LANES - 1).find(|lane| weight <= LIGHT << (2 * lane)).unwrap_or(LANES - 1)
}

/// Waiting work.
#[derive(Debug, Default)]
pub(super) struct Queue {
    lanes: Mutex<Lanes>,
    changed: Condvar,
    /// Bit `n` is set if lane `n` has work. Searches check this field between their steps.
    occupied: AtomicUsize,
}

#[derive(Debug, Default)]
struct Lanes {
    jobs: [VecDeque<Job>; LANES],
    /// Whether the queue is closed for new work.
    is_closed: bool,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Lanes> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, lanes: &Lanes) {
        let bit = |(lane, jobs): (usize, &VecDeque<Job>)| usize::from(!jobs.is_empty()) << lane;
        self.occupied.store(lanes.jobs.iter().enumerate().map(bit).sum(), Ordering::Release);
    }

    /// Adds a job to its lane, and returns `true`; returns `false` if the queue is closed.
    pub(super) fn push(&self, job: Job) -> bool {
        let mut lanes = self.lock();
        if lanes.is_closed {
            return false;
        }
        lanes.jobs[job.waiting.lane].push_back(job);
        self.note(&lanes);
        self.changed.notify_all();
        true
    }

    /// Closes the queue for new work.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
    }

    /// Waits until there is work; returns `false` if the queue is closed and empty.
    pub(super) fn wait(&self) -> bool {
        let mut lanes = self.lock();
        while lanes.jobs.iter().all(VecDeque::is_empty) {
            if lanes.is_closed {
                return false;
            }
            lanes = self.changed.wait(lanes).unwrap_or_else(PoisonError::into_inner);
        }
        true
    }

    /// Waits for `time`, or until the queue is closed; returns whether the queue is closed.
    pub(super) fn sleep(&self, time: Duration) -> bool {
        let until = Instant::now() + time;
        let mut lanes = self.lock();
        while !lanes.is_closed {
            let Some(left) = until.checked_duration_since(Instant::now()) else { return false };
            let waited = self.changed.wait_timeout(lanes, left);
            lanes = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Returns the heaviest lane with work; `None` if no lane has work.
    pub(super) fn heaviest(&self) -> Option<usize> {
        self.occupied.load(Ordering::Acquire).checked_ilog2().map(|lane| lane as usize)
    }

    /// Whether a lane lighter than `lane` has work.
    pub(super) fn has_lighter(&self, lane: usize) -> bool {
        self.occupied.load(Ordering::Acquire) & ((1 << lane) - 1) != 0
    }

    /// Returns the weight of the work in a lane.
    pub(super) fn weight(&self, lane: usize) -> usize {
        self.lock().jobs[lane].iter().map(|job| job.waiting.weight).sum()
    }

    /// Takes the first jobs of a lane, until their total weight reaches `most`.
    pub(super) fn take(&self, lane: usize, most: usize) -> Vec<Job> {
        let mut lanes = self.lock();
        let (mut weight, mut taken) = (0, Vec::new());
        while weight < most
            && let Some(job) = lanes.jobs[lane].pop_front()
        {
            weight += job.waiting.weight;
            taken.push(job);
        }
        self.note(&lanes);
        taken
    }

    /// Takes all jobs.
    pub(super) fn drain(&self) -> Vec<Job> {
        let mut lanes = self.lock();
        let all = lanes.jobs.iter_mut().flat_map(std::mem::take).collect();
        self.note(&lanes);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_are_four_times_as_heavy_as_those_before() {
        let lanes = [0, 1, 4, 5, 16, 17, 64, 65, 256, 257, usize::MAX].map(lane_of);
        assert_eq!(lanes, [0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4]);
    }
}
