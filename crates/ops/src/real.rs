//! The scalar types that the fused kernels are written for, and access to Candle's host storage.
//!
//! Training runs in `f32`; `f64` exists so that finite differences can check every backward pass.

use crate::parallel::Shared;
use crate::tape::Tape;
use candle_core::backend::BackendStorage;
use candle_core::{CpuStorage, DType, Result, Storage, Tensor, WithDType, bail};
use std::ops::{AddAssign, Deref, MulAssign, SubAssign};

/// A floating-point type with fused kernels: `f32` or `f64`.
pub(crate) trait Real:
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
    fn of(value: f64) -> Self;
    fn wide(self) -> f64;
    fn sqrt(self) -> Self;
    /// `e^self`, for arguments at most 88; vectorises where it can.
    fn exp(self) -> Self;
    fn erf(self) -> Self;
    fn ln(self) -> Self;
    /// The slice itself, where this type is `f32`.
    fn as_f32(values: &[Self]) -> Option<&[f32]>;
    /// As [`Real::as_f32`], for memory that threads share.
    fn shared_f32(values: Shared<Self>) -> Option<Shared<f32>>;
    /// From f32, where this type is that.
    fn of_f32_mut(values: &mut [f32]) -> Option<&mut [Self]>;
}

impl Real for f32 {
    const NEGATIVE_INFINITY: Self = f32::NEG_INFINITY;
    #[inline(always)]
    fn of(value: f64) -> Self {
        value as f32
    }
    #[inline(always)]
    fn wide(self) -> f64 {
        f64::from(self)
    }
    #[inline(always)]
    fn sqrt(self) -> Self {
        f32::sqrt(self)
    }
    /// Cody–Waite range reduction and a degree-6 polynomial (Cephes' `expf` scheme): within 2 ulp
    /// of libm on [-87, 88], branch-free so that loops over it vectorise. Below -87 the result
    /// is 0.
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
        // A NaN stays one through here.
        let value = poly * rest * rest + rest + 1.0;
        let scaled = value * f32::from_bits(rounded.to_bits().wrapping_add(127) << 23);
        if self < -87.0 { 0.0 } else { scaled }
    }
    #[inline(always)]
    fn erf(self) -> Self {
        candle_core::cpu::erf::erf_f32(self)
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
    fn of_f32_mut(values: &mut [f32]) -> Option<&mut [Self]> {
        Some(values)
    }
}

impl Real for f64 {
    const NEGATIVE_INFINITY: Self = f64::NEG_INFINITY;
    #[inline(always)]
    fn of(value: f64) -> Self {
        value
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
    fn ln(self) -> Self {
        f64::ln(self)
    }
    fn as_f32(_values: &[Self]) -> Option<&[f32]> {
        None
    }
    fn shared_f32(_values: Shared<Self>) -> Option<Shared<f32>> {
        None
    }
    fn of_f32_mut(_values: &mut [f32]) -> Option<&mut [Self]> {
        None
    }
}

/// Whether the fused kernels serve these inputs; where not, the composed path does.
///
/// They live on the host and have an element type with kernels. Without a tape nothing may be
/// tracked by Candle, which could not differentiate a kernel.
pub(crate) fn is_fused(tape: Option<&Tape>, inputs: &[&Tensor]) -> bool {
    let has_kernel =
        |x: &&Tensor| x.device().is_cpu() && matches!(x.dtype(), DType::F32 | DType::F64);
    inputs.iter().all(has_kernel) && (tape.is_some() || !inputs.iter().any(|x| x.track_op()))
}

/// Read access to the elements of a tensor on the host, in row-major order.
pub(crate) struct Host<'a> {
    /// Candle's read guard, whose type it does not export.
    storage: Box<dyn Deref<Target = Storage> + 'a>,
    start: usize,
    end: usize,
}

impl<'a> Host<'a> {
    /// # Errors
    /// When the elements are not contiguous.
    pub(crate) fn new(tensor: &'a Tensor) -> Result<Self> {
        let (storage, layout) = tensor.storage_and_layout();
        match layout.contiguous_offsets() {
            Some((start, end)) => Ok(Self { storage: Box::new(storage), start, end }),
            None => bail!("a fused operation got a strided tensor of shape {:?}", layout.shape()),
        }
    }

    pub(crate) fn elements<T: Real>(&self) -> Result<&[T]> {
        match &**self.storage {
            Storage::Cpu(storage) => Ok(&T::cpu_storage_as_slice(storage)?[self.start..self.end]),
            _ => bail!("a fused operation got a tensor that is not on the host"),
        }
    }
}

/// What has an element type: a tensor, or its storage.
pub(crate) trait Typed {
    fn data_type(&self) -> DType;
}

impl Typed for Tensor {
    fn data_type(&self) -> DType {
        self.dtype()
    }
}

impl Typed for CpuStorage {
    fn data_type(&self) -> DType {
        BackendStorage::dtype(self)
    }
}

/// Runs a function generic over [`Real`] for the element type of a tensor that [`is_fused`].
macro_rules! for_real {
    ($tensor:expr, $T:ident => $body:expr) => {
        match $crate::real::Typed::data_type($tensor) {
            candle_core::DType::F32 => {
                type $T = f32;
                $body
            }
            candle_core::DType::F64 => {
                type $T = f64;
                $body
            }
            other => candle_core::bail!("fused operations work on f32 and f64, not {other:?}"),
        }
    };
}
pub(crate) use for_real;

/// Defines a function whose body is compiled for AVX-512, AVX2 and the baseline, chosen at run
/// time.
macro_rules! vectorised {
    ($(#[$meta:meta])* fn $name:ident<$T:ident>($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? $body:block) => {
        $(#[$meta])*
        #[allow(clippy::too_many_arguments)]
        pub(crate) fn $name<$T: $crate::real::Real>($($arg: $ty),*) $(-> $ret)? {
            #[inline(always)]
            #[allow(clippy::too_many_arguments)]
            fn portable<$T: $crate::real::Real>($($arg: $ty),*) $(-> $ret)? $body
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,fma")]
                #[allow(clippy::too_many_arguments)]
                fn avx512<$T: $crate::real::Real>($($arg: $ty),*) $(-> $ret)? { portable::<$T>($($arg),*) }
                #[target_feature(enable = "avx2,fma")]
                #[allow(clippy::too_many_arguments)]
                fn avx2<$T: $crate::real::Real>($($arg: $ty),*) $(-> $ret)? { portable::<$T>($($arg),*) }
                if std::arch::is_x86_feature_detected!("avx512f")
                    && std::arch::is_x86_feature_detected!("avx512vl")
                    && std::arch::is_x86_feature_detected!("avx512bw")
                    && std::arch::is_x86_feature_detected!("avx512dq")
                    && std::arch::is_x86_feature_detected!("fma")
                {
                    // SAFETY: the processor has just been found to have every feature that the function enables.
                    return unsafe { avx512::<$T>($($arg),*) };
                }
                if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
                    // SAFETY: as above.
                    return unsafe { avx2::<$T>($($arg),*) };
                }
            }
            portable::<$T>($($arg),*)
        }
    };
}
pub(crate) use vectorised;

/// Lanes of the blocked sums: a fixed number, so that a sum is the same on every vector width.
const LANES: usize = 16;

/// The sum of `f` over the elements of equally long slices, in [`LANES`] interleaved partial sums:
/// vectorises, and adds in a fixed order.
#[inline(always)]
pub(crate) fn blocked_sum<T: Real, const N: usize>(
    slices: [&[T]; N],
    f: impl Fn([T; N]) -> T,
) -> T {
    let [sum] = blocked_sums(slices, |values| [f(values)]);
    sum
}

/// As [`blocked_sum`], of several functions at once.
#[inline(always)]
pub(crate) fn blocked_sums<T: Real, const N: usize, const M: usize>(
    slices: [&[T]; N],
    f: impl Fn([T; N]) -> [T; M],
) -> [T; M] {
    let count = slices[0].len();
    let slices = slices.map(|slice| &slice[..count]);
    let mut lanes = [[T::default(); LANES]; M];
    for block in 0..count / LANES {
        let blocks = slices.map(|slice| &slice[block * LANES..][..LANES]);
        for lane in 0..LANES {
            let values = f(blocks.map(|block| block[lane]));
            for sum in 0..M {
                lanes[sum][lane] += values[sum];
            }
        }
    }
    for i in count / LANES * LANES..count {
        let values = f(slices.map(|slice| slice[i]));
        for sum in 0..M {
            lanes[sum][i % LANES] += values[sum];
        }
    }
    // Halves onto halves, which vectorises too.
    lanes.map(|mut lanes| {
        let mut width = LANES / 2;
        while width > 0 {
            for lane in 0..width {
                let upper = lanes[lane + width];
                lanes[lane] += upper;
            }
            width /= 2;
        }
        lanes[0]
    })
}

/// The largest element; −∞ of none. A NaN is passed over.
#[inline(always)]
pub(crate) fn blocked_max<T: Real>(values: &[T]) -> T {
    let larger = |a: T, b: T| if b > a { b } else { a };
    let mut lanes = [T::NEGATIVE_INFINITY; LANES];
    let blocks = values.chunks_exact(LANES);
    let rest = blocks.remainder();
    for block in blocks {
        for lane in 0..LANES {
            lanes[lane] = larger(lanes[lane], block[lane]);
        }
    }
    rest.iter().chain(&lanes).fold(T::NEGATIVE_INFINITY, |largest, &value| larger(largest, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_close_to_libm() {
        for i in -87_000..88_000 {
            let x = i as f32 / 1000.0;
            let (ours, reference) = (Real::exp(x), f64::from(x).exp());
            let error = (f64::from(ours) - reference).abs() / reference;
            assert!(error < 3e-7, "exp({x}) = {ours}, libm {reference}");
        }
        assert_eq!(Real::exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(Real::exp(0.0_f32), 1.0);
        assert!(Real::exp(f32::NAN).is_nan());
    }
}
