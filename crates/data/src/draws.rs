//! Random draws that depend only on a key and an index.
//!
//! ```
//! use taper_data::Draws;
//! let draws = Draws::new(7, 0, 1);
//! assert_eq!(draws.bits(5), Draws::new(7, 0, 1).bits(5));
//! assert!((0.0..1.0).contains(&draws.unit(5)));
//! ```

/// The increment of SplitMix64.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// Source of random numbers that are addressed by an index. The same key and index give the same
/// number, whatever was drawn before.
#[derive(Debug, Clone, Copy)]
pub struct Draws {
    key: u64,
}

/// The finaliser of SplitMix64 (Steele, Lea and Flood, 2014), a bijection on 64 bits.
#[inline]
fn finalise(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

/// Epoch of a run. The batches of the epoch, and the random changes of its data, depend only on the
/// seed and the number in this value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Epoch {
    /// The seed of the run.
    pub seed: u64,
    /// The epoch, counted from 0.
    pub number: u64,
}

impl Epoch {
    /// Epoch `number` of the run with the seed `seed`.
    #[must_use]
    pub const fn new(seed: u64, number: u64) -> Self {
        Self { seed, number }
    }

    /// Draws for one purpose (see [`Draws::new`]) in this epoch.
    #[must_use]
    pub fn draws(self, purpose: u64) -> Draws {
        Draws::new(self.seed, self.number, purpose)
    }
}

impl Draws {
    /// Draws for a seed, an epoch and a purpose. `purpose` (the purpose number) distinguishes one
    /// use of random draws, such as shuffling, from other uses in the same run. Tasks that never
    /// occur in one run may use the same numbers.
    #[must_use]
    pub fn new(seed: u64, epoch: u64, purpose: u64) -> Self {
        let key = [epoch, purpose].into_iter().fold(finalise(seed ^ GOLDEN), |key, word| {
            finalise(key.wrapping_add(GOLDEN) ^ finalise(word.wrapping_add(GOLDEN)))
        });
        Self { key }
    }

    /// Draws for the object that the numbers `first` and `second` identify. They are independent of
    /// the draws for other objects.
    #[must_use]
    pub fn within(self, first: u64, second: u64) -> Self {
        Self::new(self.bits(first), second, 0)
    }

    /// 64 random bits for an index.
    #[inline]
    #[must_use]
    pub fn bits(self, index: u64) -> u64 {
        finalise(self.key.wrapping_add(GOLDEN.wrapping_mul(index.wrapping_add(1))))
    }

    /// Random number for an index, uniform in [0, 1).
    #[inline]
    #[must_use]
    pub fn unit(self, index: u64) -> f64 {
        (self.bits(index) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Random number for an index with a standard normal distribution (Box and Muller 1958). It is
    /// computed from the bits at the indices `2 index` and `2 index + 1`.
    #[must_use]
    pub fn normal(self, index: u64) -> f64 {
        // The logarithm is finite, because `1 - unit` is in (0, 1].
        let radius = (-2.0 * (1.0 - self.unit(2 * index)).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit(2 * index + 1)).cos()
    }

    /// Puts `items` in random order (Fisher and Yates).
    pub fn shuffle<T>(self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            // The high half of `wide` is uniform in 0..=last. For up to 2^32 items, the bias is at
            // most 2^-32.
            let wide = u128::from(self.bits(last as u64)) * (last as u128 + 1);
            items.swap(last, (wide >> 64) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Draws;

    #[test]
    fn a_shuffle_is_a_permutation_and_depends_on_every_word_of_the_key() {
        let order = |seed, epoch, purpose| {
            let mut items: Vec<u32> = (0..100).collect();
            Draws::new(seed, epoch, purpose).shuffle(&mut items);
            items
        };
        let base = order(1, 2, 3);
        assert_eq!(base, order(1, 2, 3));
        for other in [order(2, 2, 3), order(1, 3, 3), order(1, 2, 4), order(2, 1, 3)] {
            assert_ne!(base, other);
        }
        let mut sorted = base;
        sorted.sort_unstable();
        assert_eq!(sorted, (0..100).collect::<Vec<u32>>());
    }

    #[test]
    fn units_fill_the_interval() {
        let draws = Draws::new(5, 0, 0);
        let mean = (0..10_000).map(|index| draws.unit(index)).sum::<f64>() / 10_000.0;
        assert!((mean - 0.5).abs() < 0.01, "{mean}");
    }
}
