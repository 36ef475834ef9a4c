//! Vectors of integers with 4 bits each.

use super::WIDTH;

/// Largest integer of a vector.
pub(super) const LARGEST: f32 = 7.0;

/// Returns the integer from -[`LARGEST`] to [`LARGEST`] that is nearest to `number`.
pub(super) fn nearest(number: f32) -> f32 {
    // A 32-bit floating-point number as large as this constant has no fraction bits, so the
    // addition rounds `number`. This is faster than `round` on processors without SSE4.1.
    const WHOLE: f32 = 12_582_912.0;
    (number.clamp(-LARGEST, LARGEST) + WHOLE) - WHOLE
}

/// A vector of integers from -[`LARGEST`] to [`LARGEST`], two in each byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Packed(pub(super) [u8; WIDTH / 2]);

impl Packed {
    /// Rounds each number to the [`nearest`] integer.
    pub(super) fn pack(numbers: &[f32; WIDTH]) -> Self {
        let (pairs, _) = numbers.as_chunks::<2>();
        Self(std::array::from_fn(|place| {
            let [first, second] =
                pairs[place].map(|number| (nearest(number) as i8).cast_unsigned());
            first & 0xf | second << 4
        }))
    }

    /// Adds each number of the vector to the number at the same index in `sum`.
    pub(super) fn add_to(&self, sum: &mut [i32; WIDTH]) {
        let (pairs, _) = sum.as_chunks_mut::<2>();
        for ([first, second], &byte) in pairs.iter_mut().zip(&self.0) {
            *first += i32::from((byte << 4).cast_signed() >> 4);
            *second += i32::from(byte.cast_signed() >> 4);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_survive_their_packing() {
        let numbers: [f32; WIDTH] = std::array::from_fn(|place| place as f32 - 11.4);
        let mut sum = [100; WIDTH];
        Packed::pack(&numbers).add_to(&mut sum);
        let expected = numbers.map(|number| 100 + number.round().clamp(-7.0, 7.0) as i32);
        assert_eq!(sum, expected);
    }
}
