//! Wrapper of an exchange that measures the time for which this process has waited for others.

use std::time::{Duration, Instant};

use candle_core::Tensor;

use super::{Exchange, ExchangeError};

/// Exchange that adds up the duration of its calls. Calls of [`Exchange::begin`] count only if they
/// wait for other processes: otherwise they copy, which is work of this process.
pub(crate) struct Timed {
    inner: Box<dyn Exchange>,
    waited: Duration,
}

impl Timed {
    pub(crate) fn new(inner: Box<dyn Exchange>) -> Self {
        Self { inner, waited: Duration::ZERO }
    }

    /// Time that this process has waited so far, for other processes or for the network.
    pub(crate) const fn waited(&self) -> Duration {
        self.waited
    }

    fn time<T>(&mut self, call: impl FnOnce(&mut dyn Exchange) -> T) -> T {
        let began = Instant::now();
        let result = call(&mut *self.inner);
        self.waited += began.elapsed();
        result
    }
}

impl Exchange for Timed {
    fn rank(&self) -> usize {
        self.inner.rank()
    }

    fn size(&self) -> usize {
        self.inner.size()
    }

    fn begin(&mut self, parts: Vec<Tensor>) -> Result<(), ExchangeError> {
        match self.inner.waits_to_begin() {
            true => self.time(|inner| inner.begin(parts)),
            false => self.inner.begin(parts),
        }
    }

    fn waits_to_begin(&self) -> bool {
        self.inner.waits_to_begin()
    }

    fn end(&mut self) -> Result<Vec<Tensor>, ExchangeError> {
        self.time(|inner| inner.end())
    }

    fn gather(&mut self, message: Vec<u8>) -> Result<Vec<Vec<u8>>, ExchangeError> {
        self.time(|inner| inner.gather(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Time that each call of [`Slow`] takes.
    const LASTS: Duration = Duration::from_millis(20);

    /// Exchange in which every call takes some time.
    struct Slow {
        waits_to_begin: bool,
    }

    impl Exchange for Slow {
        fn rank(&self) -> usize {
            0
        }

        fn size(&self) -> usize {
            1
        }

        fn begin(&mut self, _: Vec<Tensor>) -> Result<(), ExchangeError> {
            std::thread::sleep(LASTS);
            Ok(())
        }

        fn waits_to_begin(&self) -> bool {
            self.waits_to_begin
        }

        fn end(&mut self) -> Result<Vec<Tensor>, ExchangeError> {
            std::thread::sleep(LASTS);
            Ok(Vec::new())
        }

        fn gather(&mut self, message: Vec<u8>) -> Result<Vec<Vec<u8>>, ExchangeError> {
            std::thread::sleep(LASTS);
            Ok(vec![message])
        }
    }

    #[test]
    fn only_waiting_is_counted() {
        for waits_to_begin in [false, true] {
            let mut timed = Timed::new(Box::new(Slow { waits_to_begin }));
            timed.begin(Vec::new()).unwrap();
            assert_eq!(timed.waited() >= LASTS, waits_to_begin);
            let before = timed.waited();
            timed.end().unwrap();
            timed.gather(Vec::new()).unwrap();
            assert!(timed.waited() >= before + 2 * LASTS);
        }
    }
}
