//! Checks that no two tasks of a parallel loop write the same element. The compiler cannot check
//! this, because the tasks write through raw pointers. With the feature `claims`, each task claims
//! the elements that it is about to write. It panics if another task has claimed one of them:
//!
//! ```sh
//! RAYON_NUM_THREADS=8 cargo test --release -p taper-ops --features claims -- --test-threads 1
//! ```
//!
//! A task is identified only by its thread. So if two tasks on the same thread write the same
//! element, this is not noticed. With more threads, it is rarer that one thread runs two tasks of a
//! loop, so use more threads than the machine has cores. The tests must run one after another,
//! because all loops share one record of claims.

#[cfg(feature = "claims")]
pub(crate) use noted::{begin, claim, disclaim};
#[cfg(not(feature = "claims"))]
pub(crate) use unheard::{begin, claim, disclaim};

#[cfg(not(feature = "claims"))]
mod unheard {
    /// A parallel loop that is running.
    #[must_use]
    pub(crate) struct Loop;

    /// Begins a parallel loop. If no other loop is running, forgets all earlier claims.
    #[inline(always)]
    pub(crate) fn begin() -> Loop {
        Loop
    }

    /// Forgets the claims on `_count` elements from `_first` on, whose memory has been allocated
    /// anew.
    #[inline(always)]
    pub(crate) fn disclaim<T>(_first: *const T, _count: usize) {}

    /// Claims `_count` elements from `_first` on for the calling thread.
    #[inline(always)]
    pub(crate) fn claim<T>(_first: *const T, _count: usize) {}
}

#[cfg(feature = "claims")]
mod noted {
    use std::collections::HashMap;
    use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
    use std::thread::ThreadId;
    use std::time::Duration;

    #[derive(Default)]
    struct Claims {
        /// For the address of each claimed element, the thread that claimed it.
        threads: HashMap<usize, ThreadId>,
        /// Number of loops that are running, inside each other or at the same time.
        loops: usize,
    }

    static CLAIMS: LazyLock<Mutex<Claims>> = LazyLock::new(Mutex::default);

    fn claims() -> MutexGuard<'static, Claims> {
        CLAIMS.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A parallel loop that is running, until it is dropped.
    #[must_use]
    pub(crate) struct Loop(());

    impl Drop for Loop {
        fn drop(&mut self) {
            claims().loops -= 1;
        }
    }

    pub(crate) fn begin() -> Loop {
        let mut claims = claims();
        if claims.loops == 0 {
            claims.threads.clear();
        }
        claims.loops += 1;
        Loop(())
    }

    pub(crate) fn disclaim<T>(first: *const T, count: usize) {
        let claims = &mut claims().threads;
        let count = if claims.is_empty() { 0 } else { count };
        for element in 0..count {
            claims.remove(&first.wrapping_add(element).addr());
        }
    }

    pub(crate) fn claim<T>(first: *const T, count: usize) {
        let this_thread = std::thread::current().id();
        let mut claims = claims();
        let threads = &mut claims.threads;
        let is_first = threads.is_empty();
        let mut addresses = (0..count).map(|element| first.wrapping_add(element).addr());
        let is_contested =
            addresses.any(|address| *threads.entry(address).or_insert(this_thread) != this_thread);
        drop(claims);
        assert!(!is_contested, "two tasks write the same element");
        if is_first {
            // Gives other threads time to begin a task before this thread begins its next task.
            std::thread::sleep(Duration::from_micros(100));
        }
    }
}

#[cfg(all(test, feature = "claims"))]
mod tests {
    use super::{begin, claim, disclaim};

    #[test]
    fn an_element_is_one_threads() {
        let elsewhere = |from: usize| {
            std::thread::scope(|scope| scope.spawn(move || claim(from as *const f32, 2)).join())
        };
        let values = [0.0_f32; 4];
        let from = |element: usize| (&raw const values[element]).addr();
        let outer = begin();
        claim(&raw const values[0], 3);
        claim(&raw const values[1], 2);
        assert!(elsewhere(from(2)).is_err());
        drop(begin());
        assert!(elsewhere(from(2)).is_err(), "a loop inside forgets no claims");
        drop(outer);
        let _again = begin();
        claim(&raw const values[0], 2);
        assert!(elsewhere(from(2)).is_ok());
        assert!(elsewhere(from(1)).is_err());
        disclaim(&raw const values[0], 2);
        assert!(elsewhere(from(0)).is_ok());
    }
}
