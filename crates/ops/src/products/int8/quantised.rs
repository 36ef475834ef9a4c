//! Matrices of int8 values with a scale for each row.

/// The number 1.5 · 2²³. Adding it to a value rounds the value to an integer. The low bits of the
/// sum are then this integer (in two's complement if it is negative).
const ROUND: f32 = 12_582_912.0;
/// Largest integer that represents a value.
const LARGEST: f32 = 127.0;
/// Rows whose largest magnitude is below this bound count as zero, because their scale would have
/// no inverse.
const SMALLEST: f32 = 1e-30;
/// The bits of an f32 that are zero in every scale: the low 7 of its 24 significant bits. So the
/// product of a 7-bit integer and a scale is exact. If such products are rounded again, the
/// integers and the scale are the same.
const SCALE_BITS: u32 = 0x7f;

/// Returns the scale of a row: the row's largest magnitude divided by 127, and rounded up so that
/// the bits [`SCALE_BITS`] are zero, or down if 127 times the scale would overflow. It is 0 if the
/// magnitude is below [`SMALLEST`], and NaN if a value is not finite.
#[inline(always)]
pub(super) fn scale_of(values: &[f32]) -> f32 {
    // The bits of magnitudes are ordered like the magnitudes; those of infinity and NaN are the
    // largest.
    let magnitude = |value: &f32| (value.to_bits() & 0x7fff_ffff).cast_signed();
    let largest = values.iter().map(magnitude).fold(0, i32::max);
    let largest = f32::from_bits(largest.cast_unsigned());
    if !largest.is_finite() {
        f32::NAN
    } else if largest < SMALLEST {
        0.0
    } else {
        let bits = (largest / LARGEST).to_bits();
        let scale = f32::from_bits((bits + SCALE_BITS) & !SCALE_BITS);
        match (scale * LARGEST).is_finite() {
            true => scale,
            false => f32::from_bits(bits & !SCALE_BITS),
        }
    }
}

/// Returns the inverse of a scale; 0 if the scale is 0 or NaN.
#[inline(always)]
pub(super) fn inverse_of(scale: f32) -> f32 {
    if scale > 0.0 { 1.0 / scale } else { 0.0 }
}

/// Rounds `value · inverse` to the nearest integer, ties to even, and returns bits whose low bits
/// are this integer. If the value or the inverse is not finite, the low bits are arbitrary.
#[inline(always)]
pub(super) fn rounded(value: f32, inverse: f32) -> u32 {
    (value * inverse + ROUND).to_bits()
}

/// A row-major matrix of integers from -127 to 127, with a scale for each row.
#[derive(Debug, Clone, PartialEq)]
pub struct Int8Matrix {
    values: Vec<i8>,
    scales: Vec<f32>,
    width: usize,
}

impl Int8Matrix {
    /// Whether a model in int8 holds the parameter with this name and shape in int8. It does for
    /// the weights of linear layers and for token embeddings, which are most of a model. Norms,
    /// biases and position tables stay in f32.
    #[must_use]
    pub fn holds(name: &str, shape: &[usize]) -> bool {
        let is_table = ["positions", "relative_bias"].into_iter().any(|table| name.contains(table));
        shape.len() == 2 && name.ends_with(".weight") && !is_table
    }

    /// Rounds `values`, in rows of `width`. Rounding the result of [`Self::to_f32`] gives the same
    /// matrix again.
    ///
    /// # Panics
    /// If the values do not form whole rows.
    #[must_use]
    pub fn round(values: &[f32], width: usize) -> Self {
        assert!(width > 0 && values.len().is_multiple_of(width));
        let scales: Vec<f32> = values.chunks_exact(width).map(scale_of).collect();
        let mut quantised = Vec::with_capacity(values.len());
        for (row, &scale) in values.chunks_exact(width).zip(&scales) {
            let inverse = inverse_of(scale);
            quantised.extend(row.iter().map(|&value| rounded(value, inverse) as i8));
        }
        Self { values: quantised, scales, width }
    }

    /// Makes a matrix from its integers and scales. Returns `None` if the number of integers is not
    /// `width` times the number of scales, if an integer is −128, or if a scale is negative, is not
    /// finite, or does not end in 7 zero bits.
    #[must_use]
    pub fn from_parts(values: Vec<i8>, scales: Vec<f32>, width: usize) -> Option<Self> {
        let fits = width > 0 && scales.len().checked_mul(width) == Some(values.len());
        let is_scale = |scale: &f32| {
            scale.is_finite() && scale.is_sign_positive() && scale.to_bits() & SCALE_BITS == 0
        };
        let is_made = fits && scales.iter().all(is_scale) && !values.contains(&i8::MIN);
        is_made.then_some(Self { values, scales, width })
    }

    /// Returns the number of rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.scales.len()
    }

    /// Returns the number of values in a row.
    #[must_use]
    pub fn width(&self) -> usize {
        self.width
    }

    /// Returns the integers, row-major.
    #[must_use]
    pub fn values(&self) -> &[i8] {
        &self.values
    }

    /// Returns the scale of each row; NaN for rows with a value that is not finite.
    #[must_use]
    pub fn scales(&self) -> &[f32] {
        &self.scales
    }

    /// Returns the values that the matrix represents, exactly.
    #[must_use]
    pub fn to_f32(&self) -> Vec<f32> {
        let rows = self.values.chunks_exact(self.width).zip(&self.scales);
        rows.flat_map(|(row, &scale)| row.iter().map(move |&value| f32::from(value) * scale))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Counter;

    fn random(count: u64, size: f64) -> Vec<f32> {
        let counter = Counter::new(3);
        (0..count).map(|i| (size * counter.normal_at(i)) as f32).collect()
    }

    #[test]
    fn values_are_within_half_a_scale() {
        for size in [1e-20, 1.0, 1e20] {
            let values = random(40 * 33, size);
            let matrix = Int8Matrix::round(&values, 33);
            for ((row, found), &scale) in
                values.chunks(33).zip(matrix.to_f32().chunks(33)).zip(matrix.scales())
            {
                let largest = row.iter().fold(0.0_f32, |largest, value| largest.max(value.abs()));
                assert!((scale * 127.0 / largest - 1.0).abs() < 1e-4, "{scale} of {largest}");
                for (value, found) in row.iter().zip(found) {
                    let error = (value - found).abs();
                    assert!(error <= 0.5001 * scale, "{value} became {found}, scale {scale}");
                }
            }
        }
    }

    /// Checks that a model that is saved in int8 and read into f32 does not change when it is saved
    /// again.
    #[test]
    fn what_was_rounded_is_rounded_to_itself() {
        for size in [1e-25, 0.02, 7e18] {
            let once = Int8Matrix::round(&random(50 * 64, size), 64);
            let again = Int8Matrix::round(&once.to_f32(), 64);
            assert_eq!(once, again);
        }
    }

    #[test]
    fn the_largest_weights_do_not_overflow() {
        for largest in [f32::MAX, -f32::MAX, f32::MAX * (1.0 - 1e-6), f32::MAX / 2.0] {
            let once = Int8Matrix::round(&[largest, largest / 3.0, 0.0], 3);
            let values = once.to_f32();
            assert_eq!(once.values()[0].unsigned_abs(), 127);
            assert!((values[0] / largest - 1.0).abs() < 1e-4, "{largest}: {values:?}");
            assert_eq!(once, Int8Matrix::round(&values, 3));
        }
    }

    #[test]
    fn ties_go_to_the_even_number() {
        let matrix = Int8Matrix::round(&[127.0, 0.5, 1.5, -0.5, -1.5, -2.5, -127.0], 7);
        assert_eq!(matrix.values(), [127, 0, 2, 0, -2, -2, -127]);
        assert_eq!(matrix.scales(), [1.0]);
    }

    #[test]
    fn a_row_of_nothing_and_one_that_is_not_finite() {
        let matrix = Int8Matrix::round(&[0.0, 1e-35, 1.0, f32::NAN, f32::INFINITY, 1.0], 2);
        assert_eq!(matrix.scales()[0], 0.0);
        assert_eq!(matrix.values()[..2], [0, 0]);
        assert!(matrix.scales()[1].is_nan() && matrix.scales()[2].is_nan());
    }

    #[test]
    fn parts_that_no_matrix_has_are_refused() {
        let part = |values: &[i8], scales: &[f32], width| {
            Int8Matrix::from_parts(values.to_vec(), scales.to_vec(), width)
        };
        assert!(part(&[1, -127], &[0.5, 0.0], 1).is_some());
        assert!(part(&[1, -128], &[0.5, 0.5], 1).is_none());
        assert!(part(&[1, 2], &[0.5], 1).is_none());
        assert!(part(&[], &[], 0).is_none());
        for scale in [f32::NAN, f32::INFINITY, -0.5, 0.1] {
            assert!(part(&[1, 2], &[0.5, scale], 1).is_none(), "{scale}");
        }
    }
}
