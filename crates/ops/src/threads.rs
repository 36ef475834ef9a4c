//! Which threads work: the pool's, and of Candle's own as few as may be.

/// Runs `work` on a thread of the pool, and waits for it.
///
/// A parallel operation that is called from outside the pool hands its work over and sleeps until it is done: two wake-ups, which a
/// small model's step pays hundreds of times. From inside, the caller takes part.
pub fn in_pool<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    rayon::scope(|_| work())
}

/// Keeps Candle's elementwise operations on the calling thread, unless `CANDLE_NUM_THREADS` is set already.
///
/// Candle runs them on a pool whose workers spin while they wait for each other. The fused operations leave Candle only
/// short passes, and the spinning takes the cores from the products: on two busy cores a training step took 1.27 times
/// as long with it. Candle reads the variable once, at its first parallel operation.
///
/// Call it first thing in `main`, before any other thread exists: it sets an environment variable.
pub fn keep_candle_on_one_thread() {
    const VARIABLE: &str = "CANDLE_NUM_THREADS";
    if std::env::var_os(VARIABLE).is_none() {
        // SAFETY: no other thread exists yet, as the documentation demands, so none can be reading the environment.
        unsafe { std::env::set_var(VARIABLE, "1") };
    }
}
