//! Measures the time of training steps by operation, forward and backward pass together.
//!
//! The profile is off until [`start`] is called. From then on, the clock is read at the start and
//! the end of each operation.

mod regions;

pub use regions::{Prediction, Regions, predict, predicted};
pub(crate) use regions::{even, longest_of, region};

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

static ENABLED: AtomicBool = AtomicBool::new(false);
static FLOPS: AtomicU64 = AtomicU64::new(0);
static OPERATIONS: Mutex<BTreeMap<&'static str, Operation>> = Mutex::new(BTreeMap::new());

/// Measurements of one operation, forward and backward together.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Operation {
    /// Total time that the operation took.
    pub time: Duration,
    /// Number of multiplications and additions of the operation; part of [`Profile::flops`].
    pub flops: u64,
}

/// Measurements since [`start`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Profile {
    /// Measurements of each operation, sorted by name.
    pub operations: Vec<(&'static str, Operation)>,
    /// Number of multiplications and additions in all matrix products and scans (recurrences over
    /// time). Scans, and the loss that recomputes its logits, compute some values twice; the second
    /// computation is not counted. Candle's backward pass is not counted either.
    pub flops: u64,
}

/// Starts measuring, with all measurements at zero.
pub fn start() {
    FLOPS.store(0, Ordering::Relaxed);
    if let Ok(mut operations) = OPERATIONS.lock() {
        operations.clear();
    }
    ENABLED.store(true, Ordering::Relaxed);
}

/// Stops measuring and returns the measurements.
#[must_use]
pub fn stop() -> Profile {
    ENABLED.store(false, Ordering::Relaxed);
    let operations = OPERATIONS.lock().map(|mut all| std::mem::take(&mut *all)).unwrap_or_default();
    Profile { operations: operations.into_iter().collect(), flops: FLOPS.load(Ordering::Relaxed) }
}

/// Runs `work`, and adds its time and its number of multiplications and additions to those of the
/// operation `name`.
pub(crate) fn time<R>(name: &'static str, work: impl FnOnce() -> R) -> R {
    if !ENABLED.load(Ordering::Relaxed) {
        return work();
    }
    let (start, before) = (Instant::now(), FLOPS.load(Ordering::Relaxed));
    let result = regions::within(name, work);
    let flops = FLOPS.load(Ordering::Relaxed).saturating_sub(before);
    if let Ok(mut operations) = OPERATIONS.lock() {
        let operation = operations.entry(name).or_default();
        operation.time += start.elapsed();
        operation.flops += flops;
    }
    result
}

/// Counts `flops` multiplications and additions that do not belong to a matrix product.
pub fn count(flops: usize) {
    if ENABLED.load(Ordering::Relaxed) {
        FLOPS.fetch_add(flops as u64, Ordering::Relaxed);
    }
}

/// Counts the multiplications and additions of a product `(m, k) · (k, n)`.
pub(crate) fn count_product(m: usize, k: usize, n: usize) {
    if ENABLED.load(Ordering::Relaxed) {
        FLOPS.fetch_add(2 * m as u64 * k as u64 * n as u64, Ordering::Relaxed);
    }
}
