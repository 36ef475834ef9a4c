//! NumPy's default random generator, so that resamples equal those of sacreBLEU.
//!
//! The generator is PCG64 (O'Neill, 2014: the XSL-RR output of a 128-bit linear congruential
//! generator), and `SeedSequence` computes its state from the seed. Integers below a bound are
//! computed by Lemire's method (2019) from 32 bits, which are one half of a drawn number of 64
//! bits. Constants and the order of draws must be those of NumPy, so that the numbers are the same.

const MULTIPLIER: u128 = 0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645;

/// A stream of random numbers, equal to `numpy.random.default_rng(seed)`.
#[derive(Debug, Clone)]
pub(crate) struct Generator {
    state: u128,
    increment: u128,
    /// Upper half of the last 64 bits that were drawn. The next draw of 32 bits uses it. `None` if
    /// it has been used.
    half: Option<u32>,
}

impl Generator {
    /// Starts the stream of a seed.
    pub(crate) fn new(seed: u64) -> Self {
        let [state_high, state_low, stream_high, stream_low] = seed_words(seed);
        let join = |high: u64, low: u64| (u128::from(high) << 64) | u128::from(low);
        let increment = (join(stream_high, stream_low) << 1) | 1;
        let mut generator = Self { state: 0, increment, half: None };
        generator.step();
        generator.state = generator.state.wrapping_add(join(state_high, state_low));
        generator.step();
        generator
    }

    fn step(&mut self) {
        self.state = self.state.wrapping_mul(MULTIPLIER).wrapping_add(self.increment);
    }

    /// Draws the next 64 bits.
    pub(crate) fn next_u64(&mut self) -> u64 {
        self.step();
        let folded = (self.state >> 64) as u64 ^ self.state as u64;
        folded.rotate_right((self.state >> 122) as u32)
    }

    /// Draws the next 32 bits: first the lower half of 64 bits, then the upper half.
    fn next_u32(&mut self) -> u32 {
        if let Some(half) = self.half.take() {
            return half;
        }
        let both = self.next_u64();
        self.half = Some((both >> 32) as u32);
        both as u32
    }

    /// Draws an integer below `bound`, like NumPy's `choice` and `integers`.
    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        if bound <= 1 {
            // A single possibility consumes no random number.
            return 0;
        }
        let mut product = u64::from(self.next_u32()) * u64::from(bound);
        if (product as u32) < bound {
            let threshold = bound.wrapping_neg() % bound;
            while (product as u32) < threshold {
                product = u64::from(self.next_u32()) * u64::from(bound);
            }
        }
        (product >> 32) as u32
    }
}

/// State words that `SeedSequence(seed)` generates.
fn seed_words(seed: u64) -> [u64; 4] {
    const POOL: usize = 4;
    let mut constant: u32 = 0x43b0_d7e5;
    let mut hash = |value: u32| {
        let value = value ^ constant;
        constant = constant.wrapping_mul(0x931e_8875);
        let value = value.wrapping_mul(constant);
        value ^ (value >> 16)
    };
    let mut pool = [seed as u32, (seed >> 32) as u32, 0, 0].map(&mut hash);
    for source in 0..POOL {
        for target in (0..POOL).filter(|&target| target != source) {
            let mixed = pool[target]
                .wrapping_mul(0xca01_f9dd)
                .wrapping_sub(hash(pool[source]).wrapping_mul(0x4973_f715));
            pool[target] = mixed ^ (mixed >> 16);
        }
    }
    let mut constant: u32 = 0x8b51_f9dd;
    let mut word = |index: usize| {
        let value = pool[index % POOL] ^ constant;
        constant = constant.wrapping_mul(0x58f3_8ded);
        let value = value.wrapping_mul(constant);
        u64::from(value ^ (value >> 16))
    };
    std::array::from_fn(|index| word(2 * index) | (word(2 * index + 1) << 32))
}

#[cfg(test)]
mod tests {
    use super::Generator;

    /// Draws N numbers below `bound` under a seed.
    fn draws<const N: usize>(seed: u64, bound: u32) -> [u32; N] {
        let mut generator = Generator::new(seed);
        std::array::from_fn(|_| generator.below(bound))
    }

    #[test]
    fn draws_are_numpy_s() {
        // numpy 2.4.6: default_rng(seed).choice(bound, size=n)
        assert_eq!(draws(12345, 7), [4, 1, 5, 2, 1, 5, 4, 4, 6, 2, 5, 2]);
        assert_eq!(draws(0, 1000), [850, 636, 511, 269, 307]);
        assert_eq!(draws(4_294_967_303, 1000), [870, 770, 875, 111, 258]);
        assert_eq!(draws(u64::MAX, 1000), [547, 680, 950, 845, 358]);
        // A bound near 2^32, where many draws are rejected.
        assert_eq!(
            draws(9, 3_000_000_000),
            [
                1_264_642_082,
                2_610_747_611,
                860_451_626,
                2_002_560_669,
                2_148_223_888,
                2_745_808_736
            ]
        );
        assert_eq!(draws(12345, 1), [0, 0]);
    }
}
