//! Rotary positions beyond the sequences of training.

use super::bounds;
use crate::ModelError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use taper_ops::Turns;

/// Scaling of the rotary angles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "kebab-case")]
pub enum RotaryScaling {
    /// None.
    #[default]
    None,
    /// Positions are divided by the factor (Chen et al. 2023).
    Interpolation,
    /// Slow angles are divided by the factor, and fast ones are kept: the base grows (bloc97 2023,
    /// "NTK-aware").
    Ntk,
}

/// Scaling of rotary positions beyond the sequences of training: set it for a trained model, or
/// train on with it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RotaryConfig {
    /// Scaling of the rotary angles.
    #[schemars(extend("x-weights" = ["changeable"]))]
    pub scaling: RotaryScaling,
    /// Length of sequences, as a multiple of those in training.
    #[schemars(range(min = 1.0, max = 1e6))]
    #[schemars(extend("x-weights" = ["changeable"]), extend("x-idle" = ["rotary-not-scaled"]))]
    pub factor: f64,
}

impl Default for RotaryConfig {
    fn default() -> Self {
        Self { scaling: RotaryScaling::None, factor: 1.0 }
    }
}

impl RotaryConfig {
    /// Rotation of heads of this width.
    pub(crate) fn turns(self, head: usize) -> Turns {
        match self.scaling {
            RotaryScaling::None => Turns::default(),
            RotaryScaling::Interpolation => Turns::interpolated(self.factor),
            RotaryScaling::Ntk => Turns::ntk(self.factor, head),
        }
    }

    pub(super) fn validate(self) -> Result<(), ModelError> {
        bounds::number("model.rotary.factor", self.factor, 1.0..=1e6)
    }
}
