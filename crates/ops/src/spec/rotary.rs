//! Angles of rotary position embedding (Su et al. 2021, section 3.2), and their scaling for
//! sequences longer than those in training.

use std::f64::consts::TAU;
use std::ops::Range;

/// Which two elements of a head form a pair that is rotated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pairs {
    /// Elements `i` and `i + Dh/2` of a head of width `Dh`, as in GPT-NeoX and Llama.
    #[default]
    Halves,
    /// Elements `2i` and `2i + 1`, as in the paper and in GPT-J.
    Interleaved,
}

/// Scaling of the speeds of rotation.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Scaling {
    /// The speeds of all pairs are divided by this number.
    Even(f64),
    /// The speeds of slow pairs, which make few rotations over a training sequence, are divided by
    /// [`Rotations::factor`]. The speeds of fast pairs are unchanged.
    ByRotations(Rotations, Ramp),
}

/// Bounds between slow pairs, whose positions are interpolated (divided by `factor`), and fast
/// pairs, which are unchanged.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rotations {
    /// Length of the sequences to support, as a multiple of `original_length`.
    pub factor: f64,
    /// Length of the longest sequence in training, in tokens.
    pub original_length: f64,
    /// Bound of slow pairs: a pair that makes fewer rotations than this over `original_length`
    /// tokens is interpolated.
    pub slow: f64,
    /// Bound of fast pairs: a pair that makes more rotations than this over `original_length`
    /// tokens is unchanged.
    pub fast: f64,
}

/// Quantity that determines the speeds of the pairs between slow and fast pairs. The speed of such
/// a pair is a weighted mean of its interpolated speed (divided by `factor`) and its unchanged
/// speed. The weight of the unchanged speed is a linear function of this quantity.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Ramp {
    /// The number of rotations over a training sequence.
    Rotations,
    /// The index of the pair.
    Pairs,
}

/// Rotations of the pairs of a head: by default, pair `i` is rotated by the angle
/// `position · base^(-2i/Dh)`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Turns {
    base: f64,
    scaling: Scaling,
    /// Multiplier of rotated queries and keys.
    magnitude: f64,
    pairs: Pairs,
    /// Number of leading elements of a head that are rotated, or `None` if all are.
    width: Option<usize>,
}

impl Default for Turns {
    fn default() -> Self {
        Self::with_base(10_000.0)
    }
}

impl Turns {
    /// Makes rotations with this base; the usual base is 10,000.
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

    /// Returns the base of the speeds; [`ntk`](Self::ntk) changes it.
    #[must_use]
    pub fn base(self) -> f64 {
        self.base
    }

    /// Replaces the choice of the two elements that form a pair.
    #[must_use]
    pub fn of_pairs(self, pairs: Pairs) -> Self {
        Self { pairs, ..self }
    }

    /// Rotates only the first `width` elements of each head, as if the head ended there (Black et
    /// al. 2022, "GPT-NeoX-20B", section 2.1.1). The width must be even.
    #[must_use]
    pub fn of_width(self, width: usize) -> Self {
        Self { width: Some(width), ..self }
    }

    /// Interpolates positions (Chen et al. 2023, "Extending Context Window of Large Language Models
    /// via Positional Interpolation", equation 4): positions are divided by `factor`. So all
    /// positions lie within the range of training, even in sequences `factor` times as long as in
    /// training.
    #[must_use]
    pub fn interpolated(self, factor: f64) -> Self {
        Self { scaling: Scaling::Even(factor), ..self }
    }

    /// Applies NTK-aware scaling (bloc97 2023; Peng et al. 2024, "YaRN", equation 16) for heads of
    /// width `head` (`Dh` below). The base becomes `base · factor^(Dh/(Dh-2))`. With this base, the
    /// positions of the slowest pair are in effect divided by `factor`. The fastest pair, which
    /// distinguishes neighbouring tokens, is unchanged. A head with only one pair is unchanged.
    #[must_use]
    pub fn ntk(self, factor: f64, head: usize) -> Self {
        let power = if head > 2 { head as f64 / (head - 2) as f64 } else { 0.0 };
        Self { base: self.base * factor.powf(power), ..self }
    }

    /// Applies the scaling of Llama 3.1 (Grattafiori et al. 2024). Slow pairs are interpolated, and
    /// fast pairs are unchanged. The speed of a pair between them is a weighted mean of its
    /// interpolated and its unchanged speed; the weight of the unchanged speed grows linearly with
    /// the number of rotations.
    #[must_use]
    pub fn llama3(self, rotations: Rotations) -> Self {
        Self { scaling: Scaling::ByRotations(rotations, Ramp::Rotations), ..self }
    }

    /// Applies the scaling of YaRN (Peng et al. 2024, section 3). Slow pairs are interpolated, and
    /// fast pairs are unchanged. The speed of a pair between them is a weighted mean of its
    /// interpolated and its unchanged speed; the weight of the unchanged speed falls linearly with
    /// the index of the pair. Queries and keys are multiplied by `magnitude`, or by
    /// `0.1 · ln factor + 1` (equation 22) if it is `None`.
    #[must_use]
    pub fn yarn(self, rotations: Rotations, magnitude: Option<f64>) -> Self {
        let usual = 0.1 * rotations.factor.max(1.0).ln() + 1.0;
        let scaling = Scaling::ByRotations(rotations, Ramp::Pairs);
        Self { scaling, magnitude: magnitude.unwrap_or(usual), ..self }
    }

    /// Returns which two elements form a pair.
    pub(crate) fn pairs(self) -> Pairs {
        self.pairs
    }

    /// Returns the number of leading elements that are rotated in a head of width `head`.
    pub(crate) fn width(self, head: usize) -> usize {
        self.width.unwrap_or(head)
    }

    /// Returns the cosines and the sines of all angles at `positions`, times the magnitude. If R
    /// elements of a head are rotated, each has the shape `(positions, R/2)`, row-major.
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

    /// Returns the angle of each pair of a head at position 1, and the multiplier of rotated
    /// queries and keys.
    #[must_use]
    pub fn speeds(self, head: usize) -> (Vec<f64>, f64) {
        let width = self.width(head);
        let speed = |pair| self.speed(pair, width) / self.stretch();
        ((0..width / 2).map(speed).collect(), self.magnitude)
    }

    /// Returns the number by which [`Scaling::Even`] divides all angles; 1 for other scalings.
    fn stretch(self) -> f64 {
        match self.scaling {
            Scaling::Even(factor) => factor,
            Scaling::ByRotations(..) => 1.0,
        }
    }

    /// Returns the angle of a pair at position 1 if `width` elements are rotated, before the
    /// division by the factor of [`Scaling::Even`].
    fn speed(self, pair: usize, width: usize) -> f64 {
        let plain = self.base.powf(-2.0 * pair as f64 / width as f64);
        let Scaling::ByRotations(rotations, ramp) = self.scaling else { return plain };
        let Rotations { factor, original_length, slow, fast } = rotations;
        // Weight of the unscaled speed, from 0 to 1.
        let kept = match ramp {
            Ramp::Rotations => {
                let of_pair = original_length * plain / TAU;
                // Without this, equal bounds would divide 0 by 0 if a pair is exactly at them.
                if of_pair == fast {
                    1.0
                } else {
                    ((of_pair - slow) / (fast - slow)).clamp(0.0, 1.0)
                }
            }
            Ramp::Pairs => {
                // `with` returns the index, as a real number, of the pair that makes this number of
                // rotations.
                let last = (width - 1) as f64;
                let with = |rotations: f64| {
                    let ratio = original_length / (rotations * TAU);
                    width as f64 * ratio.ln() / (2.0 * self.base.ln())
                };
                let first = with(fast).floor().max(0.0);
                let end = with(slow).ceil().min(last);
                // As in the authors' implementation, this avoids division by 0.
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

    /// Cosines of the angles of a head of eight elements at `position`, by the formula.
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
        // The fastest pair rotates as fast as without scaling, and the slowest a quarter as fast.
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
            // The fastest pair makes ten rotations over 64 tokens, and the slowest less than one.
            close(&cosines[..1], &[magnitude * 40_f64.cos()]);
            close(&cosines[3..], &[magnitude * expected(5.0, 10_000.0)[3]]);
        }
    }

    #[test]
    fn equal_bounds_divide_pairs_in_two_kinds() {
        // The fastest pair makes exactly one rotation over `original_length`.
        let rotations = Rotations { factor: 8.0, original_length: TAU, slow: 1.0, fast: 1.0 };
        let (speeds, _) = Turns::default().llama3(rotations).speeds(4);
        close(&speeds, &[1.0, 0.01 / 8.0]);
    }
}
