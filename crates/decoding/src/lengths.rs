//! Lengths of translations: which lengths are expected, and how the scores of translations of
//! different lengths are compared.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Expected length of a translation, as a linear function of the length of the source, in tokens
/// without `</s>`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ExpectedLength {
    /// Number of target tokens for each source token. 0: measured on the training text when a run
    /// begins, if `shortfall_penalty` is above 0.
    #[schemars(range(min = 0.0))]
    pub ratio: f64,
    /// Number of target tokens that is added to `ratio` times the source tokens.
    pub offset: f64,
}

impl ExpectedLength {
    /// Fits the function to pairs of a source length and a target length, by least squares. In two
    /// cases, the ratio of the mean lengths is used instead, with offset 0: if all sources have the
    /// same length, or if the fitted ratio is not positive or the fitted offset is negative. If all
    /// sources or all targets are empty, the expected length is unknown.
    #[must_use]
    pub fn fit(lengths: impl Iterator<Item = (usize, usize)>) -> Self {
        // The sums are integers, so they are exact and do not depend on the order of the pairs.
        let (mut count, mut x, mut y, mut xx, mut xy) = (0_i128, 0_i128, 0_i128, 0_i128, 0_i128);
        for (source, target) in lengths {
            let (source, target) = (source as i128, target as i128);
            count += 1;
            x += source;
            y += target;
            xx += source * source;
            xy += source * target;
        }
        if x == 0 || y == 0 {
            return Self::default();
        }
        let spread = count * xx - x * x;
        let slope = (count * xy - x * y) as f64 / spread as f64;
        let offset = (y as f64 - slope * x as f64) / count as f64;
        let fitted = Self { ratio: rounded(slope), offset: rounded(offset) };
        match spread > 0 && fitted.ratio > 0.0 && fitted.offset >= 0.0 {
            true => fitted,
            false => Self { ratio: rounded(y as f64 / x as f64), offset: 0.0 },
        }
    }

    /// True if nothing is known about the expected length.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        self.ratio == 0.0
    }

    /// Returns the expected number of tokens, without `</s>`, for a source of `length` tokens.
    #[must_use]
    pub fn predict(&self, length: usize) -> f64 {
        (self.ratio * length as f64 + self.offset).max(0.0)
    }
}

/// Rounds to four decimal places, because further places of a fitted number have no meaning.
fn rounded(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

/// Settings by which translations of different lengths are compared.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LengthSettings {
    /// Value of [`DecodingConfig::length_penalty`](crate::DecodingConfig::length_penalty).
    pub length_penalty: f64,
    /// Value of [`DecodingConfig::length_reward`](crate::DecodingConfig::length_reward).
    pub length_reward: f64,
    /// Value of [`DecodingConfig::shortfall_penalty`](crate::DecodingConfig::shortfall_penalty).
    pub shortfall_penalty: f64,
}

/// Returns the length penalty `((5 + n) / 6)^α` of Wu et al. 2016, "Google's Neural Machine
/// Translation System", equation 14, by which the log-probability of a hypothesis is divided.
///
/// `length` (`n`) includes the closing `</s>`, because the log-probability includes that of `</s>`.
/// If `alpha` (`α`) is 0, the penalty is 1; for a larger `α` it grows with `n`.
pub fn length_penalty(length: usize, alpha: f64) -> f64 {
    gnmt_penalty(length as f64, alpha)
}

/// Computes [`length_penalty`] for a length that need not be an integer.
pub(crate) fn gnmt_penalty(length: f64, alpha: f64) -> f64 {
    ((5.0 + length) / 6.0).powf(alpha)
}
