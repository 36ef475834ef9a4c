//! Rotary positions beyond the sequences of training.

use super::{ModelConfig, Positions, bounds};
use crate::ModelError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use taper_ops::Turns;

/// What becomes of the angles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "kebab-case")]
pub enum RotaryScaling {
    /// Nothing.
    #[default]
    None,
    /// Positions are divided by the factor (Chen et al. 2023).
    Interpolation,
    /// Slow angles are, and fast ones are left: the base grows (bloc97 2023, "NTK-aware").
    Ntk,
}

/// How rotary positions reach beyond the sequences of training: set it for a trained model, or train
/// on with it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RotaryConfig {
    /// What becomes of the angles.
    pub scaling: RotaryScaling,
    /// How many times as long sequences are as those of training.
    #[schemars(range(min = 1.0, max = 1e6))]
    pub factor: f64,
}

impl Default for RotaryConfig {
    fn default() -> Self {
        Self { scaling: RotaryScaling::None, factor: 1.0 }
    }
}

impl RotaryConfig {
    /// How heads of this width turn.
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

impl ModelConfig {
    /// Keys of rotary positions that change nothing beside others: whether that is so, why, and
    /// which.
    #[must_use]
    pub fn rotary_without_effect(&self) -> [(bool, &'static str, &'static [&'static str]); 2] {
        let is_rotary = self.positions == Positions::Rotary;
        [
            (
                !is_rotary,
                "model.positions is not \"rotary\"",
                &["model.rotary.scaling", "model.rotary.factor"],
            ),
            (
                self.rotary.scaling == RotaryScaling::None,
                "model.rotary.scaling is \"none\"",
                &["model.rotary.factor"],
            ),
        ]
    }
}
