//! Entry of work into the pool of threads, and the restriction of Candle's own pool.

use candle_core::Device;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Runs `work` for `device` on a thread of the pool, and waits for it.
///
/// A parallel operation that is called from outside the pool hands its work over and sleeps until
/// the work is done: two wake-ups, which a small model's step would pay hundreds of times. From
/// inside the pool, the caller takes part. Work for a GPU stays on the calling thread, which
/// [owns](crate::device) it.
pub fn in_pool<R: Send>(device: &Device, work: impl FnOnce() -> R + Send) -> R {
    if device.is_cpu() { rayon::scope(|_| work()) } else { work() }
}

/// Runs `work` like [`in_pool`], and keeps the other threads awake until it is done. Meant for long
/// work with many short parallel operations.
///
/// A thread without work goes to sleep after some microseconds, and waking it takes as long as a
/// small operation. Here it keeps looking for work, until `work` is done or [`PATIENCE`] has
/// passed. The same thread always runs `work`, so that its allocator has the memory that the last
/// step freed.
pub fn in_waking_pool<R: Send>(device: &Device, work: impl FnOnce() -> R + Send) -> R {
    if !device.is_cpu() {
        return work();
    }
    let caller = rayon::current_thread_index().unwrap_or(0);
    let (work, done, result) = (Mutex::new(Some(work)), AtomicBool::new(false), Mutex::new(None));
    rayon::broadcast(|context| {
        if context.index() != caller {
            return stay_awake(&done);
        }
        let _end = SetOnDrop(&done);
        let work = lock(&work).take();
        let value = work.map(|work| work());
        *lock(&result) = value;
    });
    let value = lock(&result).take();
    value.unwrap_or_else(|| unreachable!("a thread of the pool has done the work"))
}

/// No thread panics while it holds one of the locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Time after which a thread that finds no work stops looking.
const PATIENCE: Duration = Duration::from_millis(2);

/// Number of looks for work before the thread offers its core to others.
const LOOKS: usize = 64;

/// Executes work of the pool until `done`.
fn stay_awake(done: &AtomicBool) {
    let mut idle_since = Instant::now();
    loop {
        for _ in 0..LOOKS {
            if done.load(Ordering::Acquire) {
                return;
            }
            if rayon::yield_now() == Some(rayon::Yield::Executed) {
                idle_since = Instant::now();
            } else {
                std::hint::spin_loop();
            }
        }
        if idle_since.elapsed() > PATIENCE {
            return;
        }
        std::thread::yield_now();
    }
}

/// Ends the waiting of the other threads, even if the work panics.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Keeps Candle's elementwise operations on the calling thread, unless `CANDLE_NUM_THREADS` is set
/// already.
///
/// Candle runs them on a pool whose workers spin while they wait for each other. The fused
/// operations leave only short passes to Candle, and spinning takes cores away from the products:
/// on two busy cores a training step took 1.27 times as long. Candle reads the variable once, at
/// its first parallel operation.
///
/// Must be called first in `main`, before any other thread exists, because it sets an environment
/// variable.
pub fn keep_candle_on_one_thread() {
    const VARIABLE: &str = "CANDLE_NUM_THREADS";
    if std::env::var_os(VARIABLE).is_none() {
        // SAFETY: no other thread exists yet, as the documentation requires, so that none can be
        // reading the environment.
        unsafe { std::env::set_var(VARIABLE, "1") };
    }
}
