//! Dropout (Srivastava et al. 2014), inverted: kept elements are divided by the keep probability.
//!
//! A mask is never stored. A hash of (key, i) decides whether element `i` is dropped. So the
//! backward pass can compute the same mask again, and a training step can be repeated from its key.

use crate::float::Float;
use crate::rng::mask_bits;

/// Dropout of the elements of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Dropout {
    rate: f64,
    key: u64,
}

impl Dropout {
    /// Drops each element with probability `rate`; the mask is determined by `key`.
    ///
    /// A rate outside `[0, 1)` is clamped. Such a rate would be an error of the calling program,
    /// which has to validate its configuration.
    #[must_use]
    pub fn new(rate: f64, key: u64) -> Self {
        Self { rate: rate.clamp(0.0, 1.0 - f64::EPSILON), key }
    }

    /// Keeps all elements.
    #[must_use]
    pub const fn none() -> Self {
        Self { rate: 0.0, key: 0 }
    }

    /// Whether elements can be dropped: whether the rate is above 0.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.rate > 0.0
    }

    /// Returns the threshold: an element is dropped if its 32 random bits are below it.
    fn threshold(&self) -> u32 {
        (self.rate * f64::from(u32::MAX)).round() as u32
    }

    /// Returns a function that maps the index of an element to its multiplier: 0 if the element is
    /// dropped, otherwise `1 / (1 - rate)`.
    #[inline(always)]
    pub(crate) fn kernel<T: Float>(&self) -> impl Fn(u32) -> T + Copy + use<T> {
        let (key, threshold) = (self.key, self.threshold());
        let (kept, dropped) = (T::cast(1.0 / (1.0 - self.rate)), T::cast(0.0));
        move |index| if mask_bits(key, index) >= threshold { kept } else { dropped }
    }

    /// Returns the numbers that determine a mask: the key, the threshold, and the multiplier of
    /// kept elements.
    pub(crate) fn drawn(&self) -> (u64, u32, f64) {
        (self.key, self.threshold(), 1.0 / (1.0 - self.rate))
    }
}
