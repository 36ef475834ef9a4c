//! Sums and maxima in a fixed order, in lanes (interleaved partial results), so that loops
//! vectorise.

use crate::float::Float;
use std::array::from_fn;

/// Number of lanes: fixed, so that a sum is the same for every width of the vector registers.
const LANES: usize = 16;

/// Sums `f` over the elements of equally long slices, in [`LANES`] interleaved partial sums. This
/// order is fixed, and the loop vectorises.
#[inline(always)]
pub(crate) fn blocked_sum<T: Float, const N: usize>(
    slices: [&[T]; N],
    f: impl Fn([T; N]) -> T,
) -> T {
    let [sum] = blocked_sums(slices, |values| [f(values)]);
    sum
}

/// Computes several sums at once, one for each result of `f`, like [`blocked_sum`].
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
    let rest = count / LANES * LANES..count;
    if rest.is_empty() {
        return lanes.map(total);
    }
    // Copies the lanes: an array that is indexed at run time lives in memory, while `lanes` stays
    // in registers.
    let mut in_memory = lanes;
    for (lane, i) in rest.enumerate() {
        let values = f(slices.map(|slice| slice[i]));
        for sum in 0..M {
            in_memory[sum][lane] += values[sum];
        }
    }
    in_memory.map(total)
}

/// Computes the scalar product of numbers with numbers that are stored as codes; `value` returns
/// the number for a code. There are [`LANES`] partial sums, as in [`blocked_sum`].
#[inline(always)]
pub(crate) fn blocked_product<T: Float, C: Copy>(
    numbers: &[T],
    codes: &[C],
    value: impl Fn(C) -> T,
) -> T {
    let ((blocks, rest), (code_blocks, code_rest)) = (numbers.as_chunks(), codes.as_chunks());
    let mut lanes = [T::default(); LANES];
    for (numbers, codes) in blocks.iter().zip(code_blocks) {
        let (numbers, codes): (&[T; LANES], &[C; LANES]) = (numbers, codes);
        for lane in 0..LANES {
            lanes[lane] += numbers[lane] * value(codes[lane]);
        }
    }
    for ((lane, &number), &code) in lanes.iter_mut().zip(rest).zip(code_rest) {
        *lane += number * value(code);
    }
    total(lanes)
}

/// Returns the largest element; −∞ if there is none. NaN is skipped.
#[inline(always)]
pub(crate) fn blocked_max<T: Float>(values: &[T]) -> T {
    let mut lanes = [T::NEGATIVE_INFINITY; LANES];
    let (blocks, rest) = values.as_chunks::<LANES>();
    for block in blocks {
        for lane in 0..LANES {
            lanes[lane] = larger(lanes[lane], block[lane]);
        }
    }
    rest.iter().fold(largest(lanes), |largest, &value| larger(largest, value))
}

/// Returns the larger number; `a` if `b` is NaN.
#[inline(always)]
fn larger<T: Float>(a: T, b: T) -> T {
    if b > a { b } else { a }
}

/// Sums all lanes: the upper half is added to the lower half, until one lane is left.
#[inline(always)]
fn total<T: Float>(lanes: [T; LANES]) -> T {
    #[cfg(target_arch = "x86_64")]
    if let Some(lanes) = T::as_f32(&lanes) {
        return T::cast(halves::total(lanes).into());
    }
    halved(lanes, |a, b| a + b)
}

/// Returns the largest lane; no lane is NaN.
#[inline(always)]
fn largest<T: Float>(lanes: [T; LANES]) -> T {
    #[cfg(target_arch = "x86_64")]
    if let Some(lanes) = T::as_f32(&lanes) {
        return T::cast(halves::largest(lanes).into());
    }
    halved(lanes, larger)
}

#[inline(always)]
fn halved<T: Copy>(lanes: [T; LANES], f: impl Fn(T, T) -> T) -> T {
    let eight: [T; 8] = from_fn(|lane| f(lanes[lane], lanes[lane + 8]));
    let four: [T; 4] = from_fn(|lane| f(eight[lane], eight[lane + 4]));
    f(f(four[0], four[2]), f(four[1], four[3]))
}

/// Sums and maxima of f32 lanes, with instructions that every x86-64 processor has. Without these
/// instructions, the compiler moves lanes out of registers two by two, and a short sum takes four
/// times as long.
#[cfg(target_arch = "x86_64")]
mod halves {
    use super::LANES;
    use std::arch::x86_64::*;

    #[inline(always)]
    pub(super) fn total(lanes: &[f32]) -> f32 {
        // SAFETY: every x86-64 processor has this instruction.
        halved(lanes, |a, b| unsafe { _mm_add_ps(a, b) })
    }

    #[inline(always)]
    pub(super) fn largest(lanes: &[f32]) -> f32 {
        // SAFETY: as above.
        halved(lanes, |a, b| unsafe { _mm_max_ps(a, b) })
    }

    #[inline(always)]
    fn halved(lanes: &[f32], f: impl Fn(__m128, __m128) -> __m128) -> f32 {
        let lanes = &lanes[..LANES];
        // SAFETY: every x86-64 processor has these instructions, and the slice has four quarters of
        // four lanes.
        unsafe {
            let quarter = |quarter: usize| _mm_loadu_ps(lanes.as_ptr().add(4 * quarter));
            let four = f(f(quarter(0), quarter(2)), f(quarter(1), quarter(3)));
            let two = f(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(f(two, _mm_shuffle_ps::<1>(two, two)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(count: usize) -> Vec<f32> {
        (0..count).map(|i| ((i * 7919) % 1000) as f32 * 0.013 - 6.0).collect()
    }

    /// Checks, for any number of elements, that sums of f32 have the same bits as sums by the
    /// general code. (For f32, there are special instructions.)
    #[test]
    fn sums_are_added_lane_by_lane_and_halves_onto_halves() {
        for count in 0..=70 {
            let values = values(count);
            let mut lanes = [0.0_f32; LANES];
            for (i, value) in values.iter().enumerate() {
                lanes[i % LANES] += value * value;
            }
            let sum = blocked_sum([&values, &values], |[a, b]| a * b);
            assert_eq!(sum.to_bits(), halved(lanes, |a, b| a + b).to_bits(), "of {count}");
        }
    }

    #[test]
    fn the_largest_is_found_wherever_it_is_and_no_nan() {
        for count in 1..=70 {
            for place in 0..count {
                let mut values = values(count);
                values[place] = 50.0;
                values[(place + count / 2) % count] = if count > 1 { f32::NAN } else { 50.0 };
                let wide: Vec<f64> = values.iter().map(|&value| value.into()).collect();
                assert_eq!(blocked_max(&values), 50.0, "{place} of {count}");
                assert_eq!(blocked_max(&wide), 50.0, "{place} of {count}");
            }
        }
        assert_eq!(blocked_max::<f32>(&[]), f32::NEG_INFINITY);
        assert_eq!(blocked_max(&[f32::NAN; 20]), f32::NEG_INFINITY);
    }
}
