//! Time of a training step by operation, forward and backward together.
//!
//! Off until [`start`] is called; then it reads the clock at the start and end of each operation.

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

/// Measurements since [`start`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Profile {
    /// Time of each operation, in the order of their names.
    pub times: Vec<(&'static str, Duration)>,
    /// Multiplications and additions of all matrix products and scans, except those that the tiled
    /// loss and scans recompute, and those of Candle's backward pass.
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

/// Stops measuring and returns the measurements.
#[must_use]
pub fn stop() -> Profile {
    ENABLED.store(false, Ordering::Relaxed);
    let times = TIMES.lock().map(|mut times| std::mem::take(&mut *times)).unwrap_or_default();
    Profile { times: times.into_iter().collect(), flops: FLOPS.load(Ordering::Relaxed) }
}

/// Runs `work`, and adds its time to `name`.
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

/// Adds multiplications and additions that are not counted by a matrix product.
pub fn count(flops: usize) {
    if ENABLED.load(Ordering::Relaxed) {
        FLOPS.fetch_add(flops as u64, Ordering::Relaxed);
    }
}

/// Adds the arithmetic of a product `(m, k) · (k, n)`.
pub(crate) fn count_product(m: usize, k: usize, n: usize) {
    if ENABLED.load(Ordering::Relaxed) {
        FLOPS.fetch_add(2 * (m * k * n) as u64, Ordering::Relaxed);
    }
}
