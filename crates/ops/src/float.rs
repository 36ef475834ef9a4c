//! Scalar types of the fused kernels.
//!
//! Training runs in `f32`; `f64` exists so that finite differences can check every backward pass.

#[cfg(target_arch = "x86_64")]
use crate::products::Kernel;
use crate::shared::Shared;
use candle_core::WithDType;
use half::bf16;
use std::ops::{AddAssign, MulAssign, SubAssign};
#[cfg(target_arch = "x86_64")]
use std::sync::OnceLock;

/// True if no value is NaN or infinite.
///
/// The bits of a value without its sign are read as an integer. For infinity and NaN, this integer
/// is at least that of infinity; for all other values, it is smaller. So it suffices to find the
/// largest integer, in a loop that vectorises.
#[must_use]
pub fn all_finite(values: &[f32]) -> bool {
    let largest = values.iter().fold(0, |most, value| value.abs().to_bits().max(most));
    largest < f32::INFINITY.to_bits()
}

/// A floating-point type with fused kernels: `f32` or `f64`.
pub(crate) trait Float:
    WithDType
    + Copy
    + Default
    + Send
    + Sync
    + PartialOrd
    + AddAssign
    + SubAssign
    + MulAssign
    + std::ops::Neg<Output = Self>
{
    const NEGATIVE_INFINITY: Self;
    /// Returns the nearest number of this type, like Candle's `from_f64`, which is not inlined.
    fn cast(value: f64) -> Self;
    /// Converts the number to this type, exactly.
    fn widened(value: bf16) -> Self;
    fn wide(self) -> f64;
    fn sqrt(self) -> Self;
    /// Computes `e^self`, for arguments of at most 88; vectorised for f32.
    fn exp(self) -> Self;
    /// Computes the error function; vectorised for f32.
    fn erf(self) -> Self;
    /// Computes the hyperbolic tangent; vectorised for f32.
    fn tanh(self) -> Self;
    fn ln(self) -> Self;
    /// Returns the slice itself if this type is `f32`, otherwise `None`.
    fn as_f32(values: &[Self]) -> Option<&[f32]>;
    /// Returns the shared memory itself if this type is `f32`, otherwise `None`.
    fn shared_f32(values: Shared<Self>) -> Option<Shared<f32>>;
    /// Returns the f32 slice as a slice of this type if this type is `f32`, otherwise `None`.
    fn from_f32_mut(values: &mut [f32]) -> Option<&mut [Self]>;
}

impl Float for f32 {
    const NEGATIVE_INFINITY: Self = f32::NEG_INFINITY;
    #[inline(always)]
    fn cast(value: f64) -> Self {
        value as f32
    }
    #[inline(always)]
    fn widened(value: bf16) -> Self {
        // Shifts bits instead of calling `to_f32`, whose branch for NaN would keep loops scalar.
        f32::from_bits(u32::from(value.to_bits()) << 16)
    }
    #[inline(always)]
    fn wide(self) -> f64 {
        f64::from(self)
    }
    #[inline(always)]
    fn sqrt(self) -> Self {
        f32::sqrt(self)
    }
    /// Computes `e^self` by Cody–Waite range reduction and a degree-6 polynomial (the method of
    /// `expf` in Cephes): within 2 ulp of libm on [-87, 88]. It has no branches, so that loops over
    /// it vectorise. Below -87 the result is 0.
    #[inline(always)]
    fn exp(self) -> Self {
        let clamped = self.clamp(-87.0, 88.0);
        // Adding 1.5·2²³ rounds to the nearest integer and leaves that integer in the low bits of
        // the sum.
        const ROUND: f32 = 12_582_912.0;
        let rounded = clamped * std::f32::consts::LOG2_E + ROUND;
        let power = rounded - ROUND;
        let rest = (clamped - power * 0.693_359_4) - power * -2.121_944_4e-4;
        let mut poly = 1.987_569_1e-4_f32;
        poly = poly * rest + 1.398_199_9e-3;
        poly = poly * rest + 8.333_452e-3;
        poly = poly * rest + 4.166_579_6e-2;
        poly = poly * rest + 1.666_666_5e-1;
        poly = poly * rest + 0.5;
        // If `self` is NaN, so is `value`.
        let value = poly * rest * rest + rest + 1.0;
        let scaled = value * f32::from_bits(rounded.to_bits().wrapping_add(127) << 23);
        if self < -87.0 { 0.0 } else { scaled }
    }
    /// Computes the error function: near zero as `x · p(x²)`, further out as `1 - e^-q(|x|)`. The
    /// polynomials p and q were fitted in f64 by weighted least squares until their largest error
    /// was minimal (Lawson 1961). The error is at most 1.2e-7, and near zero at most 3e-7 relative
    /// to the result. Both expressions are computed for every argument, so that loops vectorise.
    #[inline(always)]
    fn erf(self) -> Self {
        let square = self * self;
        let mut near = -6.090_36e-4_f32;
        near = near * square + 5.011_962_7e-3;
        near = near * square - 2.677_890_8e-2;
        near = near * square + 1.128_214_1e-1;
        near = near * square - 3.761_252_5e-1;
        near = near * square + 1.283_791e-1;
        let near = near * self + self;
        // From 4 on the result is 1 in f32.
        let size = self.abs().clamp(0.0, 4.0);
        let mut far = -1.971_816e-4_f32;
        far = far * size + 3.055_606_3e-3;
        far = far * size - 2.227_708_3e-2;
        far = far * size + 1.040_373_5e-1;
        far = far * size + 6.370_597_5e-1;
        far = far * size + 1.127_749_6;
        far = far * size + 1.774_959_5e-4;
        let far = (1.0 - Float::exp(-far)).copysign(self);
        if size < 0.9 { near } else { far }
    }
    /// Computes the hyperbolic tangent: near zero as `x + x³ p(x²)`, further out as
    /// `1 - 2 / (e^2|x| + 1)`. The polynomial p is that of `tanhf` in Cephes. The relative error is
    /// at most 2e-7. Both expressions are computed for every argument, so that loops vectorise.
    #[inline(always)]
    fn tanh(self) -> Self {
        let square = self * self;
        let mut near = -5.704_988_7e-3_f32;
        near = near * square + 2.063_909e-2;
        near = near * square - 5.373_971_6e-2;
        near = near * square + 1.333_144_2e-1;
        near = near * square - 3.333_328e-1;
        let near = near * square * self + self;
        // From 10 on the result is 1 in f32.
        let size = self.abs();
        let twice = size + size;
        let far =
            (1.0 - 2.0 / (Float::exp(if size > 10.0 { 20.0 } else { twice }) + 1.0)).copysign(self);
        // If `self` is NaN, so is the result.
        if size < 0.625 {
            near
        } else if size.is_nan() {
            self
        } else {
            far
        }
    }
    #[inline(always)]
    fn ln(self) -> Self {
        f32::ln(self)
    }
    fn as_f32(values: &[Self]) -> Option<&[f32]> {
        Some(values)
    }
    fn shared_f32(values: Shared<Self>) -> Option<Shared<f32>> {
        Some(values)
    }
    fn from_f32_mut(values: &mut [f32]) -> Option<&mut [Self]> {
        Some(values)
    }
}

impl Float for f64 {
    const NEGATIVE_INFINITY: Self = f64::NEG_INFINITY;
    #[inline(always)]
    fn cast(value: f64) -> Self {
        value
    }
    #[inline(always)]
    fn widened(value: bf16) -> Self {
        value.to_f64()
    }
    #[inline(always)]
    fn wide(self) -> f64 {
        self
    }
    #[inline(always)]
    fn sqrt(self) -> Self {
        f64::sqrt(self)
    }
    #[inline(always)]
    fn exp(self) -> Self {
        f64::exp(self)
    }
    #[inline(always)]
    fn erf(self) -> Self {
        candle_core::cpu::erf::erf_f64(self)
    }
    #[inline(always)]
    fn tanh(self) -> Self {
        f64::tanh(self)
    }
    #[inline(always)]
    fn ln(self) -> Self {
        f64::ln(self)
    }
    fn as_f32(_values: &[Self]) -> Option<&[f32]> {
        None
    }
    fn shared_f32(_values: Shared<Self>) -> Option<Shared<f32>> {
        None
    }
    fn from_f32_mut(_values: &mut [f32]) -> Option<&mut [Self]> {
        None
    }
}

/// Width of the vector registers for which a loop is compiled.
#[cfg(target_arch = "x86_64")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Registers {
    Avx512,
    Avx2,
    Baseline,
}

#[cfg(target_arch = "x86_64")]
impl Registers {
    /// Returns the registers for loops. They are the widest of this processor, unless the user
    /// [chose](Kernel::chosen) a kernel with narrower ones for matrix products.
    pub(crate) fn widest() -> Self {
        static WIDEST: OnceLock<Registers> = OnceLock::new();
        *WIDEST.get_or_init(|| Self::within(Kernel::chosen().ok().flatten()))
    }

    /// Returns the widest registers that both the processor has and the chosen kernel, if any,
    /// uses.
    fn within(chosen: Option<Kernel>) -> Self {
        let has_fma = std::arch::is_x86_feature_detected!("fma");
        if chosen != Some(Kernel::Fma256)
            && has_fma
            && std::arch::is_x86_feature_detected!("avx512f")
            && std::arch::is_x86_feature_detected!("avx512vl")
            && std::arch::is_x86_feature_detected!("avx512bw")
            && std::arch::is_x86_feature_detected!("avx512dq")
        {
            Self::Avx512
        } else if has_fma && std::arch::is_x86_feature_detected!("avx2") {
            Self::Avx2
        } else {
            Self::Baseline
        }
    }
}

/// Defines a function whose body is compiled three times, for AVX-512, AVX2 and the baseline of
/// x86-64. The processor decides at run time which version is called.
macro_rules! vectorised {
    ($(#[$meta:meta])* fn $name:ident<$T:ident $(, $U:ident: $bound:path)?>(
        $($arg:ident: $ty:ty),* $(,)?
    ) $(-> $ret:ty)? $body:block) => {
        $(#[$meta])*
        #[allow(
            clippy::too_many_arguments,
            reason = "as many as the function that is written has, here and in its copies below"
        )]
        pub(crate) fn $name<$T: $crate::float::Float $(, $U: $bound)?>($($arg: $ty),*) $(-> $ret)? {
            #[inline(always)]
            #[allow(clippy::too_many_arguments)]
            fn portable<$T: $crate::float::Float $(, $U: $bound)?>($($arg: $ty),*) $(-> $ret)? $body
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,fma")]
                #[allow(clippy::too_many_arguments)]
                fn avx512<$T: $crate::float::Float $(, $U: $bound)?>($($arg: $ty),*) $(-> $ret)? {
                    portable::<$T $(, $U)?>($($arg),*)
                }
                #[target_feature(enable = "avx2,fma")]
                #[allow(clippy::too_many_arguments)]
                fn avx2<$T: $crate::float::Float $(, $U: $bound)?>($($arg: $ty),*) $(-> $ret)? {
                    portable::<$T $(, $U)?>($($arg),*)
                }
                match $crate::float::Registers::widest() {
                    // SAFETY: the processor has every feature that the function enables, here and
                    // below.
                    $crate::float::Registers::Avx512 => return unsafe { avx512::<$T $(, $U)?>($($arg),*) },
                    // SAFETY: as above.
                    $crate::float::Registers::Avx2 => return unsafe { avx2::<$T $(, $U)?>($($arg),*) },
                    $crate::float::Registers::Baseline => {}
                }
            }
            portable::<$T $(, $U)?>($($arg),*)
        }
    };
}
pub(crate) use vectorised;

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that with a kernel for AVX2, loops use no wider registers.
    #[test]
    #[cfg(target_arch = "x86_64")]
    fn the_registers_of_loops_are_no_wider_than_those_of_the_chosen_kernel() {
        assert_ne!(Registers::within(Some(Kernel::Fma256)), Registers::Avx512);
        for kernel in [Kernel::Tiles, Kernel::Dots, Kernel::Fma512] {
            assert_eq!(Registers::within(Some(kernel)), Registers::within(None));
        }
    }

    #[test]
    fn exp_is_close_to_libm() {
        for i in -87_000..88_000 {
            let x = i as f32 / 1000.0;
            let (ours, reference) = (Float::exp(x), f64::from(x).exp());
            let error = (f64::from(ours) - reference).abs() / reference;
            assert!(error < 3e-7, "exp({x}) = {ours}, libm {reference}");
        }
        assert_eq!(Float::exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(Float::exp(0.0_f32), 1.0);
        assert!(Float::exp(f32::NAN).is_nan());
    }

    #[test]
    fn erf_is_close_to_that_of_f64() {
        for i in -60_000..60_000 {
            let x = i as f32 / 10_000.0;
            let (ours, reference) = (Float::erf(x), Float::erf(f64::from(x)));
            let error = (f64::from(ours) - reference).abs();
            let bound = if x.abs() < 0.9 { 3e-7 * reference.abs() } else { 1.2e-7 };
            assert!(error <= bound, "erf({x}) = {ours}, in f64 {reference}");
        }
        assert_eq!(Float::erf(f32::INFINITY), 1.0);
        assert_eq!(Float::erf(f32::NEG_INFINITY), -1.0);
        assert!(Float::erf(f32::NAN).is_nan());
    }

    #[test]
    fn tanh_is_close_to_that_of_f64() {
        for i in -200_000..200_000 {
            let x = i as f32 / 10_000.0;
            let (ours, reference) = (Float::tanh(x), f64::from(x).tanh());
            let error = (f64::from(ours) - reference).abs();
            assert!(error <= 2e-7 * reference.abs(), "tanh({x}) = {ours}, in f64 {reference}");
        }
        assert_eq!(Float::tanh(f32::INFINITY), 1.0);
        assert_eq!(Float::tanh(f32::NEG_INFINITY), -1.0);
        assert!(Float::tanh(f32::NAN).is_nan());
    }
}
