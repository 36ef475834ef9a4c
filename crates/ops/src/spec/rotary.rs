//! Angles of rotary position embedding (Su et al. 2021, section 3.2), and their scaling for
//! sequences longer than in training.

use std::ops::Range;

/// Speed of rotation of a head's pairs: pair `i` rotates by `position / stretch · base^(-2i/Dh)`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Turns {
    base: f64,
    stretch: f64,
}

impl Default for Turns {
    fn default() -> Self {
        Self { base: 10_000.0, stretch: 1.0 }
    }
}

impl Turns {
    /// Position interpolation (Chen et al. 2023, "Extending Context Window of Large Language Models
    /// via Positional Interpolation", equation 4): positions are divided by `factor`, so that those
    /// of sequences `factor` times as long lie within the range of training.
    #[must_use]
    pub fn interpolated(factor: f64) -> Self {
        Self { stretch: factor, ..Self::default() }
    }

    /// NTK-aware scaling (bloc97 2023; Peng et al. 2024, "YaRN", equation 16): the base becomes
    /// `base · factor^(Dh/(Dh-2))`, so that the slowest pair is interpolated by `factor`, and the
    /// fastest, which distinguishes neighbours, is unchanged. A head with a single pair is
    /// unchanged too.
    #[must_use]
    pub fn ntk(factor: f64, head: usize) -> Self {
        let power = if head > 2 { head as f64 / (head - 2) as f64 } else { 0.0 };
        let plain = Self::default();
        Self { base: plain.base * factor.powf(power), ..plain }
    }

    /// Cosines and sines at some positions: `(positions, Dh/2)` each.
    pub(crate) fn angles(self, positions: Range<usize>, head: usize) -> (Vec<f64>, Vec<f64>) {
        let half = head / 2;
        let of_pair = |pair: usize| self.base.powf(-2.0 * pair as f64 / head as f64);
        let angle = |n: usize| (n / half) as f64 / self.stretch * of_pair(n % half);
        let places = positions.start * half..positions.end * half;
        (places.clone().map(|n| angle(n).cos()).collect(), places.map(|n| angle(n).sin()).collect())
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
        let (cosines, _) = Turns::interpolated(4.0).angles(24..25, 8);
        close(&cosines, &expected(6.0, 10_000.0));
        let (cosines, _) = Turns::ntk(4.0, 8).angles(24..25, 8);
        close(&cosines, &expected(24.0, 10_000.0 * 4.0_f64.powf(8.0 / 6.0)));
        // The fastest pair rotates as before, and the slowest a quarter as fast.
        close(&cosines[..1], &expected(24.0, 10_000.0)[..1]);
        close(&cosines[3..], &expected(6.0, 10_000.0)[3..]);
    }
}
