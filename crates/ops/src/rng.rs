//! Counter-based random numbers: each is a function of (seed, purpose, index) and never depends on
//! earlier draws.
//!
//! With a stateful generator, a run depends on the order in which threads, devices and restarts
//! draw from it. Here each draw is a hash of its seed, purpose and index (Salmon et al. 2011,
//! "Parallel random numbers: as easy as 1, 2, 3"). So there is no generator state to save, and a
//! training step can be repeated.
//!
//! The hash is the final mixing function of SplitMix64 (Steele et al. 2014). As a counter-based
//! generator, whose input advances by an odd constant, it passes the test suite BigCrush.
//!
//! ```
//! use taper_ops::rng::{mix, Counter};
//! let counter = Counter::new(mix(1, &[2, 3]));
//! assert_eq!(counter.u64_at(7), Counter::new(mix(1, &[2, 3])).u64_at(7));
//! assert!((0.0..1.0).contains(&counter.f32_at(7)));
//! ```

/// Odd constant by which the input of SplitMix64 advances: 2⁶⁴ divided by the golden ratio.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Mixes the bits of `z` by the last step of SplitMix64: a bijection in which each output bit
/// depends on every input bit.
#[inline(always)]
pub(crate) const fn finalise(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Mixes `words` into `seed`, and returns a key that depends on every word and on their order.
#[must_use]
pub fn mix(seed: u64, words: &[u64]) -> u64 {
    let mut key = finalise(seed.wrapping_add(GOLDEN));
    for &word in words {
        key = finalise(key.wrapping_add(GOLDEN) ^ finalise(word.wrapping_add(GOLDEN)));
    }
    key
}

/// Returns a key for a name, such as the name of a parameter: the FNV-1a hash of the name, with its
/// bits mixed.
#[must_use]
pub fn name_key(name: &str) -> u64 {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    finalise(hash)
}

/// Infinite sequence of random numbers, determined by a key; any element can be computed from its
/// index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counter {
    key: u64,
}

impl Counter {
    /// Makes the sequence that `key` determines.
    #[must_use]
    pub const fn new(key: u64) -> Self {
        Self { key }
    }

    /// Returns element `index`: 64 uniform bits.
    #[inline(always)]
    #[must_use]
    pub const fn u64_at(&self, index: u64) -> u64 {
        finalise(self.key.wrapping_add(index.wrapping_mul(GOLDEN)))
    }

    /// Returns element `index` as a uniform number in `[0, 1)`, a multiple of 2⁻²⁴.
    #[inline(always)]
    #[must_use]
    pub fn f32_at(&self, index: u64) -> f32 {
        (self.u64_at(index) >> 40) as f32 * (1.0 / (1u64 << 24) as f32)
    }

    /// Returns element `index` as a uniform number in `[0, 1)`, a multiple of 2⁻⁵³.
    #[must_use]
    pub fn f64_at(&self, index: u64) -> f64 {
        (self.u64_at(index) >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Returns a standard normal number, computed from elements `2·index` and `2·index + 1` (Box
    /// and Muller 1958).
    #[must_use]
    pub fn normal_at(&self, index: u64) -> f64 {
        let radius = (-2.0 * (1.0 - self.f64_at(2 * index)).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.f64_at(2 * index + 1)).cos()
    }
}

/// Returns 32 uniform bits for the element `index` of a dropout mask. They are computed with 32-bit
/// integers, so that loops vectorise.
///
/// The lower half of the key is mixed into the index by XOR. The result is hashed by Chris Wellons'
/// `lowbias32`. Then the upper half of the key is added, and two more rounds of hashing follow.
#[inline(always)]
pub(crate) const fn mask_bits(key: u64, index: u32) -> u32 {
    let mut x = index ^ (key as u32);
    x = round(x, ROUNDS[0]);
    x = round(x, ROUNDS[1]);
    x = round(x, ROUNDS[2]);
    x = x.wrapping_add((key >> 32) as u32);
    x = round(x, ROUNDS[3]);
    round(x, ROUNDS[4])
}

/// Shift and multiplier of each round of [`mask_bits`]; the upper half of the key is added before
/// the fourth round.
pub(crate) const ROUNDS: [(u32, u32); 5] =
    [(16, 0x7feb_352d), (15, 0x846c_a68b), (16, 1), (16, 0x7feb_352d), (15, 1)];

#[inline(always)]
const fn round(x: u32, (shift, factor): (u32, u32)) -> u32 {
    (x ^ (x >> shift)).wrapping_mul(factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uniform_and_normal_have_their_moments() {
        let counter = Counter::new(mix(3, &[1]));
        let count = 200_000;
        let uniform = (0..count).map(|i| f64::from(counter.f32_at(i))).sum::<f64>() / count as f64;
        assert!((uniform - 0.5).abs() < 3e-3, "{uniform}");
        let normals: Vec<f64> = (0..count).map(|i| counter.normal_at(i)).collect();
        let mean = normals.iter().sum::<f64>() / count as f64;
        let variance = normals.iter().map(|x| x * x).sum::<f64>() / count as f64;
        assert!(mean.abs() < 1e-2 && (variance - 1.0).abs() < 2e-2, "{mean} {variance}");
    }

    #[test]
    fn mask_bits_are_balanced_and_differ_between_keys() {
        let (a, b) = (mix(1, &[5]), mix(1, &[6]));
        let mut ones = [0u32; 32];
        let mut agree = 0;
        let count = 100_000;
        for i in 0..count {
            let bits = mask_bits(a, i);
            for (bit, total) in ones.iter_mut().enumerate() {
                *total += (bits >> bit) & 1;
            }
            agree += u32::from((bits >> 31) == (mask_bits(b, i) >> 31));
        }
        for total in ones {
            assert!((f64::from(total) / f64::from(count) - 0.5).abs() < 0.01, "{total}");
        }
        assert!((f64::from(agree) / f64::from(count) - 0.5).abs() < 0.01, "{agree}");
    }

    #[test]
    fn the_order_of_words_matters() {
        assert_ne!(mix(1, &[2, 3]), mix(1, &[3, 2]));
        assert_ne!(mix(1, &[2]), mix(1, &[2, 0]));
        assert_ne!(name_key("encoder.layers.0"), name_key("encoder.layers.1"));
    }
}
