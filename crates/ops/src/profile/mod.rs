//! Where the time of a training step goes: by operation, forward and backward together.
//!
//! Off unless [`start`] was called, and then one clock reading at each end of an operation.

mod regions;

pub use regions::{Prediction, Regions, predict, predicted};
pub(crate) use regions::{even, longest_of, region};

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

static ENABLED: AtomicBool = AtomicBool::new(false);
static FLOPS: AtomicU64 = AtomicU64::new(0);
static TIMES: Mutex<BTreeMap<&'static str, Duration>> = Mutex::new(BTreeMap::new());

/// What was measured since [`start`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Profile {
    /// Time of each operation, in the order of their names.
    pub times: Vec<(&'static str, Duration)>,
    /// Multiplications and additions of all matrix products and scans, but for those that the tiled
    /// loss and scans make again, and those by which Candle goes back.
    pub flops: u64,
}

/// Starts measuring, from zero.
pub fn start() {
    FLOPS.store(0, Ordering::Relaxed);
    if let Ok(mut times) = TIMES.lock() {
        times.clear();
    }
    ENABLED.store(true, Ordering::Relaxed);
}

/// Stops measuring and returns what was measured.
#[must_use]
pub fn stop() -> Profile {
    ENABLED.store(false, Ordering::Relaxed);
    let times = TIMES.lock().map(|mut times| std::mem::take(&mut *times)).unwrap_or_default();
    Profile { times: times.into_iter().collect(), flops: FLOPS.load(Ordering::Relaxed) }
}

/// Runs `work`, and books its time to `name`.
pub(crate) fn time<R>(name: &'static str, work: impl FnOnce() -> R) -> R {
    if !ENABLED.load(Ordering::Relaxed) {
        return work();
    }
    let start = Instant::now();
    let result = regions::within(name, work);
    if let Ok(mut times) = TIMES.lock() {
        *times.entry(name).or_default() += start.elapsed();
    }
    result
}

/// Books multiplications and additions that are no product of matrices, or not made by one.
pub fn count(flops: usize) {
    if ENABLED.load(Ordering::Relaxed) {
        FLOPS.fetch_add(flops as u64, Ordering::Relaxed);
    }
}

/// Books the arithmetic of a product `(m, k) · (k, n)`.
pub(crate) fn count_product(m: usize, k: usize, n: usize) {
    if ENABLED.load(Ordering::Relaxed) {
        FLOPS.fetch_add(2 * (m * k * n) as u64, Ordering::Relaxed);
    }
}
