//! The `[data.regression]` table of a recipe.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// Which linear functions a model learns to continue from their points: `y = w·x` and noise, with w
/// and each x of independent standard normal numbers (Garg et al. 2022, "What Can Transformers
/// Learn In-Context?", section 3).
///
/// Nothing is stored. Those of training are drawn from (`training.seed`, epoch, number); those of a
/// split that is measured on from its name and their number, so that any name is a split.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RegressionConfig {
    /// The numbers of an x.
    #[schemars(range(min = 1, max = 4096))]
    pub dimensions: usize,
    /// The points of a function: the last is predicted from one fewer examples.
    #[schemars(range(min = 1, max = 65_536))]
    pub points: usize,
    /// The standard deviation of the normal noise on each y; 0 for none.
    #[schemars(range(min = 0.0))]
    pub noise: f64,
    /// The functions of an epoch of training, none of which comes again in another epoch.
    #[schemars(range(min = 1))]
    pub functions: usize,
    /// The functions of a split that is measured on.
    #[schemars(range(min = 1))]
    pub measured: usize,
}

impl Default for RegressionConfig {
    fn default() -> Self {
        Self { dimensions: 5, points: 16, noise: 0.5, functions: 65_536, measured: 4096 }
    }
}

/// The most numbers of an x.
const MOST_DIMENSIONS: usize = 4096;
/// The most points of a function.
const MOST_POINTS: usize = 65_536;
/// The largest deviation of the noise: beyond, squares of answers leave f32.
const LOUDEST: f64 = 1e12;

impl RegressionConfig {
    /// Tokens of a function: each x, and each y but the last, which nothing follows.
    #[must_use]
    pub fn tokens(&self) -> usize {
        (2 * self.points).saturating_sub(1)
    }

    /// Numbers of a function, of all its tokens.
    #[must_use]
    pub fn values(&self) -> usize {
        (self.points * (self.dimensions + 1)).saturating_sub(1)
    }

    /// Refuses what is no function.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] with the offending key.
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
