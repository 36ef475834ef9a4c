//! Runs work in the thread pool, and restricts Candle's own pool.

use candle_core::Device;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Runs `work` for `device` on a thread of Rayon's pool, and waits for it.
///
/// If a parallel operation is called from outside the pool, its caller hands the work over and
/// sleeps until it is done. This takes two wake-ups, and a training step of a small model calls
/// hundreds of operations. If an operation is called from inside the pool, the caller takes part in
/// the work. Work for a GPU stays on the calling thread, which [owns](crate::device) the GPU.
pub fn in_pool<R: Send>(device: &Device, work: impl FnOnce() -> R + Send) -> R {
    if device.is_cpu() { rayon::scope(|_| work()) } else { work() }
}

/// Runs `work` like [`in_pool`], and keeps the pool's other threads awake until it is done. Meant
/// for long work with many short parallel operations.
///
/// Normally, a thread without work goes to sleep after some microseconds, and waking it takes as
/// long as a small operation. Here, such a thread keeps looking for work until `work` is done, or
/// until it has found none for [`PATIENCE`]. If the caller is a thread of the pool, it runs `work`
/// itself; otherwise the pool's first thread does. So every training step runs on the same thread,
/// whose allocator can reuse the memory that the previous step freed.
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

/// Locks a mutex. It is never poisoned in practice, because no thread panics while it holds the
/// lock.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Time without work after which a thread stops looking for work and can sleep.
const PATIENCE: Duration = Duration::from_millis(2);

/// Number of times that a thread looks for work before it offers its core to other threads.
const LOOKS: usize = 64;

/// Executes tasks of the pool until `done` is set, or until there were none for [`PATIENCE`].
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

/// Sets the flag when it is dropped, even if the work panics, so that the other threads stop
/// waiting.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Keeps Candle's elementwise operations on the calling thread, unless `CANDLE_NUM_THREADS` is
/// already set.
///
/// Candle runs these operations on a pool whose workers spin while they wait for each other.
/// Taper's fused operations leave only short passes over memory to Candle. Spinning takes cores
/// away from the matrix products: on two busy cores, a training step took 1.27 times as long.
/// Candle reads the variable once, at its first parallel operation.
///
/// Must be called first in `main`, before any other thread exists, because it sets an environment
/// variable.
pub fn keep_candle_on_one_thread() {
    const VARIABLE: &str = "CANDLE_NUM_THREADS";
    if std::env::var_os(VARIABLE).is_none() {
        // SAFETY: no other thread exists yet, as the documentation requires, so that no thread can
        // be reading the environment.
        unsafe { std::env::set_var(VARIABLE, "1") };
    }
}
