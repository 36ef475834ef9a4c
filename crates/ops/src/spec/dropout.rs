//! Dropout (Srivastava et al. 2014), inverted: kept elements are divided by the keep probability.
//!
//! A mask is never stored. A hash of (key, i) decides whether element `i` is dropped. So the
//! backward pass draws the same mask again, and a training step can be repeated from its key.

use crate::float::Float;
use crate::rng::mask_bits;
use candle_core::{DType, Device, Result, Tensor};

/// Dropout of the elements of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Dropout {
    rate: f64,
    key: u64,
}

impl Dropout {
    /// Drops each element with probability `rate`, by the mask of `key`.
    ///
    /// A rate outside `[0, 1)` is clamped; it would be a programming error of the caller, who has
    /// validated the configuration.
    #[must_use]
    pub fn new(rate: f64, key: u64) -> Self {
        Self { rate: rate.clamp(0.0, 1.0 - f64::EPSILON), key }
    }

    /// Keeps all elements.
    #[must_use]
    pub const fn none() -> Self {
        Self { rate: 0.0, key: 0 }
    }

    /// Whether any element can be dropped.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.rate > 0.0
    }

    /// Bound on an element's 32 random bits, below which it is dropped.
    fn threshold(&self) -> u32 {
        (self.rate * f64::from(u32::MAX)).round() as u32
    }

    /// Function from the index of an element to its factor: 0 if it is dropped, otherwise
    /// `1 / (1 - rate)`.
    #[inline(always)]
    pub(crate) fn kernel<T: Float>(&self) -> impl Fn(u32) -> T + Copy + use<T> {
        let (key, threshold) = (self.key, self.threshold());
        let (kept, dropped) = (T::of(1.0 / (1.0 - self.rate)), T::of(0.0));
        move |index| if mask_bits(key, index) >= threshold { kept } else { dropped }
    }

    /// The mask as a tensor, by which the composed paths multiply. Every device draws it itself,
    /// and drops the same elements.
    ///
    /// # Shapes
    /// → `(count,)`.
    ///
    /// # Errors
    /// When the device has no memory for it.
    pub fn mask(&self, count: usize, dtype: DType, device: &Device) -> Result<Tensor> {
        if !device.is_cpu() {
            #[cfg(feature = "cuda")]
            if device.is_cuda()
                && let Some(mask) = crate::cuda::drop(&Tensor::ones(count, dtype, device)?, *self)
            {
                return mask;
            }
            return self.mask_on_device(count, dtype, device);
        }
        let factor = self.kernel::<f64>();
        let mask: Vec<f64> = (0..count).map(|index| factor(index as u32)).collect();
        Tensor::from_vec(mask, count, device)?.to_dtype(dtype)
    }

    /// Parameters of a mask: its key, the threshold, and the factor of kept elements.
    pub(crate) fn drawn(&self) -> (u64, u32, f64) {
        (self.key, self.threshold(), 1.0 / (1.0 - self.rate))
    }

    /// Computes the mask with Candle's operations only.
    pub(crate) fn mask_on_device(
        &self,
        count: usize,
        dtype: DType,
        device: &Device,
    ) -> Result<Tensor> {
        crate::composed::mask_on_device(self.drawn(), count, dtype, device)
    }
}
