//! What tasks of a parallel loop promise each other: that no element is written by two of them. No
//! compiler checks it. With the feature `claims` each task says what it is about to write, and where
//! another has said the same, it panics:
//!
//! ```sh
//! RAYON_NUM_THREADS=8 cargo test --release -p taper-ops --features claims -- --test-threads 1
//! ```
//!
//! Tasks are told apart by their threads alone, so that it takes more of these than there are cores:
//! hardly any then has two tasks. Tests run one after another, since all loops share what is noted.

#[cfg(feature = "claims")]
pub(crate) use noted::{begin, claim, disclaim};
#[cfg(not(feature = "claims"))]
pub(crate) use unheard::{begin, claim, disclaim};

#[cfg(not(feature = "claims"))]
mod unheard {
    /// A parallel loop begins: what was written before is as if nobody had.
    #[inline(always)]
    pub(crate) fn begin() {}

    /// The elements from `_first` on are nobody's yet: other memory was there before.
    #[inline(always)]
    pub(crate) fn disclaim<T>(_first: *const T, _count: usize) {}

    /// This thread alone writes the elements from `_first` on.
    #[inline(always)]
    pub(crate) fn claim<T>(_first: *const T, _count: usize) {}
}

#[cfg(feature = "claims")]
mod noted {
    use std::collections::HashMap;
    use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
    use std::thread::ThreadId;
    use std::time::Duration;

    /// Whose an element is, by its address.
    type Claims = HashMap<usize, ThreadId>;

    static CLAIMS: LazyLock<Mutex<Claims>> = LazyLock::new(Mutex::default);

    fn claims() -> MutexGuard<'static, Claims> {
        CLAIMS.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn begin() {
        claims().clear();
    }

    pub(crate) fn disclaim<T>(first: *const T, count: usize) {
        let mut claims = claims();
        let count = if claims.is_empty() { 0 } else { count };
        for element in 0..count {
            claims.remove(&first.wrapping_add(element).addr());
        }
    }

    pub(crate) fn claim<T>(first: *const T, count: usize) {
        let own = std::thread::current().id();
        let mut claims = claims();
        let is_first = claims.is_empty();
        let mut addresses = (0..count).map(|element| first.wrapping_add(element).addr());
        let is_contested = addresses.any(|address| *claims.entry(address).or_insert(own) != own);
        drop(claims);
        assert!(!is_contested, "two tasks write the same element");
        if is_first {
            // So that the others have begun before this thread takes its next task.
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
        begin();
        claim(&raw const values[0], 3);
        claim(&raw const values[1], 2);
        assert!(elsewhere(from(2)).is_err());
        begin();
        claim(&raw const values[0], 2);
        assert!(elsewhere(from(2)).is_ok());
        assert!(elsewhere(from(1)).is_err());
        disclaim(&raw const values[0], 2);
        assert!(elsewhere(from(0)).is_ok());
    }
}
