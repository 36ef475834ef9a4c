//! Angles of rotary position embedding (Su et al. 2021, section 3.2), and their scaling for
//! sequences longer than in training.

use std::f64::consts::TAU;
use std::ops::Range;

/// Elements of a head that are rotated together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pairs {
    /// Element `i` with element `i + Dh/2`, as in GPT-NeoX and Llama.
    #[default]
    Halves,
    /// Element `2i` with element `2i + 1`, as in the paper and in GPT-J.
    Interleaved,
}

/// Scaling of the speeds of pairs.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Scaling {
    /// All are divided by the same number.
    Even(f64),
    /// Pairs with few rotations over the sequences of training are divided by `factor`, and pairs
    /// with many are unchanged.
    ByRotations(Rotations, Ramp),
}

/// Bounds between slow pairs, which are interpolated, and fast pairs, which are unchanged.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rotations {
    /// Length of sequences, as a multiple of those in training.
    pub factor: f64,
    /// Longest sequence of training, in tokens.
    pub original_length: f64,
    /// Rotations over `original_length` below which a pair is interpolated.
    pub slow: f64,
    /// Rotations over `original_length` above which a pair is unchanged.
    pub fast: f64,
}

/// Quantity that grows linearly between slow and fast pairs.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Ramp {
    /// The number of rotations.
    Rotations,
    /// The number of the pair.
    Pairs,
}

/// Speed of rotation of a head's pairs: by default, pair `i` rotates by `position · base^(-2i/Dh)`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Turns {
    base: f64,
    scaling: Scaling,
    /// Factor of rotated queries and keys.
    magnitude: f64,
    pairs: Pairs,
    /// Leading elements of a head that are rotated; `None`: all.
    width: Option<usize>,
}

impl Default for Turns {
    fn default() -> Self {
        Self::with_base(10_000.0)
    }
}

impl Turns {
    /// Rotation with this base, in place of 10,000.
    #[must_use]
    pub fn with_base(base: f64) -> Self {
        Self {
            base,
            scaling: Scaling::Even(1.0),
            magnitude: 1.0,
            pairs: Pairs::Halves,
            width: None,
        }
    }

    /// Base of the speeds, including the base of a scaling that changes it.
    #[must_use]
    pub fn base(self) -> f64 {
        self.base
    }

    /// Rotates other pairs.
    #[must_use]
    pub fn of_pairs(self, pairs: Pairs) -> Self {
        Self { pairs, ..self }
    }

    /// Rotates only the first `width` elements of each head, an even number, as if the head ended
    /// there (Black et al. 2022, "GPT-NeoX-20B", section 2.1.1).
    #[must_use]
    pub fn of_width(self, width: usize) -> Self {
        Self { width: Some(width), ..self }
    }

    /// Interpolates positions (Chen et al. 2023, "Extending Context Window of Large Language Models
    /// via Positional Interpolation", equation 4): they are divided by `factor`, so that the
    /// positions of sequences `factor` times as long are within the range of training.
    #[must_use]
    pub fn interpolated(self, factor: f64) -> Self {
        Self { scaling: Scaling::Even(factor), ..self }
    }

    /// Scales NTK-aware (bloc97 2023; Peng et al. 2024, "YaRN", equation 16): the base becomes
    /// `base · factor^(Dh/(Dh-2))`, so that the slowest pair is interpolated by `factor`, and the
    /// fastest pair, which distinguishes neighbours, is unchanged. A single pair is unchanged too.
    #[must_use]
    pub fn ntk(self, factor: f64, head: usize) -> Self {
        let power = if head > 2 { head as f64 / (head - 2) as f64 } else { 0.0 };
        Self { base: self.base * factor.powf(power), ..self }
    }

    /// Scales like Llama 3.1 (Grattafiori et al. 2024): slow pairs are interpolated, fast pairs are
    /// unchanged, and between them the share grows with the number of rotations.
    #[must_use]
    pub fn llama3(self, rotations: Rotations) -> Self {
        Self { scaling: Scaling::ByRotations(rotations, Ramp::Rotations), ..self }
    }

    /// Scales by YaRN (Peng et al. 2024, section 3): slow pairs are interpolated, fast pairs are
    /// unchanged, and between them the share grows with the index of the pair. Queries and keys are
    /// multiplied by `magnitude`; `None`: `0.1 · ln factor + 1` (equation 22).
    #[must_use]
    pub fn yarn(self, rotations: Rotations, magnitude: Option<f64>) -> Self {
        let usual = 0.1 * rotations.factor.max(1.0).ln() + 1.0;
        let scaling = Scaling::ByRotations(rotations, Ramp::Pairs);
        Self { scaling, magnitude: magnitude.unwrap_or(usual), ..self }
    }

    /// Number of pairs that are rotated.
    pub(crate) fn pairs(self) -> Pairs {
        self.pairs
    }

    /// Number of leading elements of a head that are rotated.
    pub(crate) fn width(self, head: usize) -> usize {
        self.width.unwrap_or(head)
    }

    /// Cosines and sines at some positions, times the magnitude: `(positions, R/2)` each, if R
    /// elements of a head are rotated.
    pub(crate) fn angles(self, positions: Range<usize>, head: usize) -> (Vec<f64>, Vec<f64>) {
        let width = self.width(head);
        let half = width / 2;
        let speeds: Vec<f64> = (0..half).map(|pair| self.speed(pair, width)).collect();
        let stretch = self.stretch();
        let angle = |n: usize| (n / half) as f64 / stretch * speeds[n % half];
        let places = positions.start * half..positions.end * half;
        let magnitude = self.magnitude;
        (
            places.clone().map(|n| magnitude * angle(n).cos()).collect(),
            places.map(|n| magnitude * angle(n).sin()).collect(),
        )
    }

    /// Angles of all rotated pairs of a head at position 1, and the factor of rotated queries and
    /// keys.
    #[must_use]
    pub fn speeds(self, head: usize) -> (Vec<f64>, f64) {
        let width = self.width(head);
        let speed = |pair| self.speed(pair, width) / self.stretch();
        ((0..width / 2).map(speed).collect(), self.magnitude)
    }

    /// Number that an even scaling divides all angles by.
    fn stretch(self) -> f64 {
        match self.scaling {
            Scaling::Even(factor) => factor,
            Scaling::ByRotations(..) => 1.0,
        }
    }

    /// Angle of a pair among `width` rotated elements at position 1, before an even scaling.
    fn speed(self, pair: usize, width: usize) -> f64 {
        let plain = self.base.powf(-2.0 * pair as f64 / width as f64);
        let Scaling::ByRotations(rotations, ramp) = self.scaling else { return plain };
        let Rotations { factor, original_length, slow, fast } = rotations;
        // Share of the unscaled speed.
        let kept = match ramp {
            Ramp::Rotations => {
                let of_pair = original_length * plain / TAU;
                ((of_pair - slow) / (fast - slow)).clamp(0.0, 1.0)
            }
            Ramp::Pairs => {
                // Number of the pair with this number of rotations.
                let last = (width - 1) as f64;
                let with = |rotations: f64| {
                    let ratio = original_length / (rotations * TAU);
                    width as f64 * ratio.ln() / (2.0 * self.base.ln())
                };
                let first = with(fast).floor().max(0.0);
                let end = with(slow).ceil().min(last);
                // As in the authors' implementation, this avoids a division by 0.
                let end = if end == first { end + 0.001 } else { end };
                1.0 - ((pair as f64 - first) / (end - first)).clamp(0.0, 1.0)
            }
        };
        plain / factor * (1.0 - kept) + plain * kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Angles of a head of eight elements at a position, by formula.
    fn expected(position: f64, base: f64) -> Vec<f64> {
        (0..4).map(|pair| (position * base.powf(-f64::from(pair) / 4.0)).cos()).collect()
    }

    fn close(ours: &[f64], theirs: &[f64]) {
        for (ours, theirs) in ours.iter().zip(theirs) {
            assert!((ours - theirs).abs() < 1e-12, "{ours} {theirs}");
        }
    }

    #[test]
    fn positions_between_those_of_training_take_the_place_of_those_beyond() {
        let (cosines, _) = Turns::default().angles(6..7, 8);
        close(&cosines, &expected(6.0, 10_000.0));
        let (cosines, _) = Turns::with_base(500.0).angles(6..7, 8);
        close(&cosines, &expected(6.0, 500.0));
        let (cosines, _) = Turns::default().interpolated(4.0).angles(24..25, 8);
        close(&cosines, &expected(6.0, 10_000.0));
        let (cosines, _) = Turns::default().ntk(4.0, 8).angles(24..25, 8);
        close(&cosines, &expected(24.0, 10_000.0 * 4.0_f64.powf(8.0 / 6.0)));
        // The fastest pair rotates as before, and the slowest a quarter as fast.
        close(&cosines[..1], &expected(24.0, 10_000.0)[..1]);
        close(&cosines[3..], &expected(6.0, 10_000.0)[3..]);
    }

    #[test]
    fn slow_pairs_are_interpolated_and_fast_ones_are_not() {
        let rotations = Rotations { factor: 8.0, original_length: 64.0, slow: 1.0, fast: 4.0 };
        let plain = Turns::default();
        for (turns, magnitude) in [
            (plain.llama3(rotations), 1.0),
            (plain.yarn(rotations, None), 0.1 * 8.0_f64.ln() + 1.0),
            (plain.yarn(rotations, Some(1.5)), 1.5),
        ] {
            let (cosines, _) = turns.angles(40..41, 8);
            // The pairs make ten rotations over 64 tokens, and less than one.
            close(&cosines[..1], &[magnitude * 40_f64.cos()]);
            close(&cosines[3..], &[magnitude * expected(5.0, 10_000.0)[3]]);
        }
    }
}
