//! Sums and maxima in a fixed order, over lanes that vectorise.

use crate::float::Float;

/// Lanes of the blocked sums: a fixed number, so that a sum is the same on every vector width.
const LANES: usize = 16;

/// The sum of `f` over the elements of equally long slices, in [`LANES`] interleaved partial sums:
/// vectorises, and adds in a fixed order.
#[inline(always)]
pub(crate) fn blocked_sum<T: Float, const N: usize>(
    slices: [&[T]; N],
    f: impl Fn([T; N]) -> T,
) -> T {
    let [sum] = blocked_sums(slices, |values| [f(values)]);
    sum
}

/// As [`blocked_sum`], of several functions at once.
#[inline(always)]
pub(crate) fn blocked_sums<T: Float, const N: usize, const M: usize>(
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
pub(crate) fn blocked_max<T: Float>(values: &[T]) -> T {
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
