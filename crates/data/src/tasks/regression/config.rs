//! Settings of linear functions that are drawn as examples: the `[data.regression]` table of a
//! recipe (the TOML file with all settings of a training).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// Linear functions that a model learns to continue from their points: `y = w·x` and noise, with w
/// and each x of independent standard normal numbers (Garg et al. 2022, "What Can Transformers
/// Learn In-Context?", section 3).
///
/// Nothing is stored. Training functions are drawn from (`training.seed`, epoch, number). Functions
/// for measuring are drawn from the name of the split and their number, so that any name is a
/// split.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RegressionConfig {
    /// Number of dimensions of an x.
    #[schemars(range(min = 1, max = 4096))]
    pub dimensions: usize,
    /// Number of points of a function; the last one is predicted from the examples before it.
    #[schemars(range(min = 1, max = 65_536))]
    pub points: usize,
    /// Standard deviation of the normal noise on each y; 0 means no noise.
    #[schemars(range(min = 0.0))]
    pub noise: f64,
    /// Number of functions in an epoch of training. Each epoch has new functions.
    #[schemars(range(min = 1))]
    pub functions: usize,
    /// Number of functions of a validation or test set.
    #[schemars(range(min = 1))]
    pub measured: usize,
}

impl Default for RegressionConfig {
    fn default() -> Self {
        Self { dimensions: 5, points: 16, noise: 0.5, functions: 65_536, measured: 4096 }
    }
}

/// Largest number of dimensions of an x.
const MOST_DIMENSIONS: usize = 4096;
/// Largest number of points of a function.
const MOST_POINTS: usize = 65_536;
/// Largest standard deviation of the noise. With larger noise, squared answers could exceed f32.
const LOUDEST: f64 = 1e12;

impl RegressionConfig {
    /// Number of tokens of a function: one for each x and one for each y. The last y is not read,
    /// because nothing follows it.
    #[must_use]
    pub fn tokens(&self) -> usize {
        (2 * self.points).saturating_sub(1)
    }

    /// Number of values of a function, in all its tokens.
    #[must_use]
    pub fn values(&self) -> usize {
        (self.points * (self.dimensions + 1)).saturating_sub(1)
    }

    /// Refuses impossible settings.
    ///
    /// # Errors
    ///
    /// [`Error::Config`], with the offending key, if a setting is impossible.
    pub(crate) fn validate(&self) -> Result<()> {
        let wrong = |key, message: String| Err(Error::Config { key, message });
        if !(1..=MOST_DIMENSIONS).contains(&self.dimensions) {
            let message = format!("must be from 1 to {MOST_DIMENSIONS}");
            return wrong("data.regression.dimensions", message);
        }
        if !(1..=MOST_POINTS).contains(&self.points) {
            let message = format!("must be from 1 to {MOST_POINTS}");
            return wrong("data.regression.points", message);
        }
        if !(0.0..=LOUDEST).contains(&self.noise) {
            let message = format!("must be from 0 to {LOUDEST:e}");
            return wrong("data.regression.noise", message);
        }
        for (key, count) in [
            ("data.regression.functions", self.functions),
            ("data.regression.measured", self.measured),
        ] {
            if count == 0 {
                return wrong(key, "must be at least 1".to_owned());
            }
        }
        Ok(())
    }
}
