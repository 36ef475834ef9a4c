//! Arithmetic on sixteen channels side by side (in lanes): as many f32 numbers as the widest vector
//! registers hold.

use crate::float::Float;

/// Number of channels in a block.
pub(super) const LANES: usize = 16;

/// One number for each channel of a block.
pub(super) type Lanes<T> = [T; LANES];

/// Loads `count` numbers, followed by zeros in the other lanes.
#[inline(always)]
pub(super) fn load<T: Float>(values: &[T], count: usize) -> Lanes<T> {
    let mut lanes = [T::default(); LANES];
    if count == LANES {
        lanes.copy_from_slice(&values[..LANES]);
    } else {
        lanes[..count].copy_from_slice(&values[..count]);
    }
    lanes
}

#[inline(always)]
pub(super) fn map<T: Float, const N: usize>(
    inputs: [&Lanes<T>; N],
    f: impl Fn([T; N]) -> T,
) -> Lanes<T> {
    let mut out = [T::default(); LANES];
    for lane in 0..LANES {
        out[lane] = f(inputs.map(|values| values[lane]));
    }
    out
}

/// Sums the lanes by repeatedly adding the upper half to the lower half.
#[inline(always)]
pub(super) fn sum<T: Float>(mut lanes: Lanes<T>) -> T {
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            let upper = lanes[lane + width];
            lanes[lane] += upper;
        }
        width /= 2;
    }
    lanes[0]
}

/// Computes `ln(1 + eˣ)` without branches, so that loops vectorise.
///
/// With y = e^−|x|, the result is max(x, 0) + ln(1 + y), where ln(1 + y) = 2 artanh(y / (2 + y)).
/// The argument of artanh is at most 1/3, so that its power series can be truncated after a few
/// terms. The omitted terms are smaller than the rounding error of the type.
#[inline(always)]
pub(super) fn softplus<T: Float>(x: T) -> T {
    let (zero, two) = (T::cast(0.0), T::cast(2.0));
    let size = if x < zero { -x } else { x };
    let power = (-size).exp();
    let ratio = power / (two + power);
    let square = ratio * ratio;
    let terms = if size_of::<T>() == 4 { 8 } else { 18 };
    let mut series = zero;
    for term in (0..terms).rev() {
        series = series * square + T::cast(1.0 / f64::from(2 * term + 1));
    }
    let positive = if x < zero { zero } else { x };
    positive + two * ratio * series
}

/// Computes `1 / (1 + e^−x)`.
#[inline(always)]
pub(super) fn sigmoid<T: Float>(x: T) -> T {
    T::cast(1.0) / (T::cast(1.0) + (-x).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn softplus_is_that_of_the_library() {
        for i in -4000..4000 {
            let x = f64::from(i) / 100.0;
            let expected = x.max(0.0) + (-x.abs()).exp().ln_1p();
            let error = (softplus(x) - expected).abs() / expected;
            assert!(error < 4e-15, "softplus({x}): {error:e}");
            let expected =
                f64::from(x as f32).max(0.0) + (-f64::from(x as f32).abs()).exp().ln_1p();
            let error = (f64::from(softplus(x as f32)) - expected).abs() / expected;
            assert!(error < 6e-7, "softplus({x}) in f32: {error:e}");
        }
        assert!(softplus(f32::NAN).is_nan());
    }
}
