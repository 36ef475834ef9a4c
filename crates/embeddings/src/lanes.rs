//! Vectors stored as groups of sixteen numbers, and arithmetic on these groups.

use pulp::Simd;

/// Number of lanes (numbers) in a group. The widest vector registers hold sixteen f32 numbers. Sums
/// are computed over the lanes of a group in a fixed order, so that they are the same on registers
/// of any width.
pub(crate) const LANES: usize = 16;

/// Sixteen numbers, aligned so that a register reads them at once.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C, align(64))]
pub(crate) struct Lanes(pub(crate) [f32; LANES]);

/// Number of groups of a row of `dimensions` numbers; zeros fill the last group.
pub(crate) fn groups(dimensions: usize) -> usize {
    dimensions.div_ceil(LANES)
}

/// Writes `values` to a row, followed by zeros.
pub(crate) fn fill(row: &mut [Lanes], values: impl Iterator<Item = f32>) {
    let mut values = values.fuse();
    for group in row {
        for lane in &mut group.0 {
            *lane = values.next().unwrap_or(0.0);
        }
    }
}

/// Returns the first `dimensions` numbers of a row.
pub(crate) fn numbers(row: &[Lanes], dimensions: usize) -> impl Iterator<Item = f32> + '_ {
    row.iter().flat_map(|group| group.0).take(dimensions)
}

/// Computes `Σ aᵢ·bᵢ` in sixteen partial sums, one for each lane. Then the second half of the
/// partial sums is added to the first half, which leaves eight sums. This is repeated until one sum
/// is left.
#[inline(always)]
pub(crate) fn dot<S: Simd>(simd: S, a: &[Lanes], b: &[Lanes]) -> f32 {
    // Number of registers that together hold a group; 1 if a register holds a whole group.
    let mut registers = LANES / S::F32_LANES;
    let mut sums = [simd.splat_f32s(0.0); LANES];
    for (a, b) in a.iter().zip(b) {
        let ((a, _), (b, _)) = (S::as_simd_f32s(&a.0), S::as_simd_f32s(&b.0));
        for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
            *sum = simd.add_f32s(*sum, simd.mul_f32s(*a, *b));
        }
    }
    while registers > 1 {
        registers /= 2;
        for register in 0..registers {
            sums[register] = simd.add_f32s(sums[register], sums[register + registers]);
        }
    }
    simd.reduce_sum_f32s(sums[0])
}

/// Computes `a += factor · b` and `b += factor · a`, each from the old values of the other.
#[inline(always)]
pub(crate) fn add_each_other<S: Simd>(simd: S, a: &mut [Lanes], b: &mut [Lanes], factor: f32) {
    let factor = simd.splat_f32s(factor);
    for (a, b) in a.iter_mut().zip(b) {
        let ((a, _), (b, _)) = (S::as_mut_simd_f32s(&mut a.0), S::as_mut_simd_f32s(&mut b.0));
        for (a, b) in a.iter_mut().zip(b) {
            let (old_a, old_b) = (*a, *b);
            *a = simd.add_f32s(old_a, simd.mul_f32s(factor, old_b));
            *b = simd.add_f32s(old_b, simd.mul_f32s(factor, old_a));
        }
    }
}

/// Computes `to += from`.
#[inline(always)]
pub(crate) fn add<S: Simd>(simd: S, to: &mut [Lanes], from: &[Lanes]) {
    for (to, from) in to.iter_mut().zip(from) {
        let ((to, _), (from, _)) = (S::as_mut_simd_f32s(&mut to.0), S::as_simd_f32s(&from.0));
        for (to, from) in to.iter_mut().zip(from) {
            *to = simd.add_f32s(*to, *from);
        }
    }
}

/// Computes `row *= factor`.
#[inline(always)]
pub(crate) fn scale<S: Simd>(simd: S, row: &mut [Lanes], factor: f32) {
    let factor = simd.splat_f32s(factor);
    for group in row {
        for values in S::as_mut_simd_f32s(&mut group.0).0 {
            *values = simd.mul_f32s(*values, factor);
        }
    }
}

/// Computes `eˣ` with an error of a few units in the last place. x is first limited to the range
/// from −80 to 80. It is then written as n·ln 2 + rest with an integer n. 2ⁿ is made by writing n
/// to the exponent's bits, and e^rest is approximated by a polynomial.
#[inline(always)]
fn exp(x: f32) -> f32 {
    // Adding and subtracting 1.5·2²³ rounds to the nearest integer.
    const ROUNDING: f32 = 12_582_912.0;
    let x = x.clamp(-80.0, 80.0);
    let whole = (x * std::f32::consts::LOG2_E + ROUNDING) - ROUNDING;
    // ln 2 is divided into two parts. The first has few bits, so that its product with `whole` is
    // exact.
    let rest = (x - whole * 0.693_359_4) - whole * -2.121_944_4e-4;
    let mut sum = 1.0 / 5040.0_f32;
    for factor in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
        sum = sum * rest + factor;
    }
    f32::from_bits((((whole as i32) + 127) << 23) as u32) * sum
}

/// Computes the logistic function, `1 / (1 + e⁻ˣ)`.
#[inline(always)]
pub(crate) fn logistic(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_logistic_function_is_close_to_libm() {
        for i in -40_000..40_000 {
            let x = i as f32 / 500.0;
            let exact = 1.0 / (1.0 + (-f64::from(x)).exp());
            let error = (f64::from(logistic(x)) - exact).abs() / exact;
            assert!(error < 4e-7, "{x}: {} is not {exact}", logistic(x));
        }
        assert!(logistic(f32::MAX) <= 1.0 && logistic(f32::MIN) < 1e-30);
    }

    #[test]
    fn rows_keep_their_numbers_and_are_filled_with_zeros() {
        let values: Vec<f32> = (1..=19).map(|i| i as f32).collect();
        let mut row = vec![Lanes([9.0; LANES]); groups(19)];
        fill(&mut row, values.iter().copied());
        assert_eq!(numbers(&row, 19).collect::<Vec<_>>(), values);
        assert_eq!(row[1].0[3..], [0.0; 13]);
        let sum = pulp::Arch::new().dispatch(Dot(&row, &row));
        assert_eq!(sum, values.iter().map(|x| x * x).sum::<f32>());
    }

    struct Dot<'a>(&'a [Lanes], &'a [Lanes]);

    impl pulp::WithSimd for Dot<'_> {
        type Output = f32;

        #[inline(always)]
        fn with_simd<S: Simd>(self, simd: S) -> f32 {
            dot(simd, self.0, self.1)
        }
    }

    #[test]
    fn registers_of_each_width_give_the_same_bits() {
        let row = |seed: f32| {
            let mut row = vec![Lanes::default(); 7];
            fill(&mut row, (0..100).map(|i| (seed * i as f32).sin() / (1.0 + i as f32)));
            row
        };
        let (a, b) = (row(0.7), row(1.3));
        let best = pulp::Arch::new().dispatch(Dot(&a, &b));
        for sum in [
            dot(pulp::Scalar, &a, &b),
            dot(pulp::Scalar128b, &a, &b),
            dot(pulp::Scalar256b, &a, &b),
            dot(pulp::Scalar512b, &a, &b),
        ] {
            assert_eq!(best.to_bits(), sum.to_bits());
        }
    }
}
