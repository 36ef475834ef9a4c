//! Work that waits for a run, in lanes by its weight.
//!
//! **Decision.** What is light never waits for what is heavy: a search of one lane lets all lighter
//! ones go first between two of its steps, and what waits in a heavy lane takes no place from a
//! light one. The alternative, one search into which requests come and from which they go, would
//! have to run prompts and hypotheses of every setting together.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::work::Job;

/// Lanes, the lightest first.
pub(super) const LANES: usize = 5;

/// The most weight of work in the first lane; each further one has work of up to four times the
/// weight of the lane before, and the last all that is heavier.
const LIGHT: usize = 4;

/// The lane of work of a weight.
pub(super) fn lane_of(weight: usize) -> usize {
    (0..LANES - 1).find(|lane| weight <= LIGHT << (2 * lane)).unwrap_or(LANES - 1)
}

/// Work that waits.
#[derive(Debug, Default)]
pub(super) struct Queue {
    lanes: Mutex<Lanes>,
    changed: Condvar,
    /// A bit for each lane that has work, which searches look at between their steps.
    occupied: AtomicUsize,
}

#[derive(Debug, Default)]
struct Lanes {
    jobs: [VecDeque<Job>; LANES],
    /// Whether no more is taken.
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

    /// Adds a job to its lane, unless no more is taken.
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

    /// Takes no more.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
    }

    /// Waits until there is work; `false` where none will come any more.
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

    /// Waits for a while, or until no more is taken; whether that is so.
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

    /// The heaviest lane that has work.
    pub(super) fn heaviest(&self) -> Option<usize> {
        self.occupied.load(Ordering::Acquire).checked_ilog2().map(|lane| lane as usize)
    }

    /// Whether a lane lighter than `lane` has work.
    pub(super) fn has_lighter(&self, lane: usize) -> bool {
        self.occupied.load(Ordering::Acquire) & ((1 << lane) - 1) != 0
    }

    /// The weight that waits in a lane.
    pub(super) fn weight(&self, lane: usize) -> usize {
        self.lock().jobs[lane].iter().map(|job| job.waiting.weight).sum()
    }

    /// Takes jobs from a lane, the first ones, until they weigh `most`.
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

    /// Takes everything.
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
