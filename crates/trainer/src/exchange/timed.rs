//! Wrapper of an exchange that measures the time for which this process has waited for others.

use std::time::{Duration, Instant};

use candle_core::Tensor;

use super::{Exchange, ExchangeError};

/// Exchange that adds up the duration of its calls, except those of [`Exchange::begin`].
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
        self.inner.begin(parts)
    }

    fn end(&mut self) -> Result<Vec<Tensor>, ExchangeError> {
        self.time(|inner| inner.end())
    }

    fn gather(&mut self, message: Vec<u8>) -> Result<Vec<Vec<u8>>, ExchangeError> {
        self.time(|inner| inner.gather(message))
    }
}
