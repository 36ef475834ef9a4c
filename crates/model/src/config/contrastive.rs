//! Shape of a model that embeds images and texts in one space.

use super::{ModelConfig, bounds};
use crate::ModelError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The encoder of texts, and the space in which texts and images are embedded (Radford et al. 2021,
/// section 2.4). The encoder of images has `d_model`, `d_ff`, `heads` and `encoder_layers`; the
/// encoder of text has `decoder_layers`, since its tokens see only earlier tokens.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ContrastiveConfig {
    /// Dimensions of the space of images and texts.
    #[schemars(range(min = 1))]
    pub dimensions: usize,
    /// Initial divisor of similarities, which are from -1 to 1. It is trained; no similarity is
    /// multiplied by more than 100.
    #[schemars(range(min = 0.01))]
    #[schemars(extend("x-weights" = ["no-part"]))]
    pub temperature: f64,
    /// `d_model` of the encoder of text; 0 for the same as in the encoder of images.
    pub text_d_model: usize,
    /// `d_ff` of the encoder of text; 0 for the same as in the encoder of images.
    pub text_d_ff: usize,
    /// `heads` of the encoder of text; 0 for the same as in the encoder of images.
    pub text_heads: usize,
}

impl Default for ContrastiveConfig {
    fn default() -> Self {
        Self { dimensions: 512, temperature: 0.07, text_d_model: 0, text_d_ff: 0, text_heads: 0 }
    }
}

impl ContrastiveConfig {
    /// Checks the numbers.
    ///
    /// # Errors
    /// If a number is out of range; the error names the key, its value and the requirement.
    pub(super) fn validate(&self) -> Result<(), ModelError> {
        bounds::size("model.contrastive.dimensions", self.dimensions, bounds::WIDTHS)?;
        for (key, value) in [
            ("model.contrastive.text_d_model", self.text_d_model),
            ("model.contrastive.text_d_ff", self.text_d_ff),
            ("model.contrastive.text_heads", self.text_heads),
        ] {
            bounds::size(key, value, 0..=*bounds::WIDTHS.end())?;
        }
        // With the smallest temperature, similarities are multiplied by 100, the largest factor.
        bounds::number("model.contrastive.temperature", self.temperature, 0.01..=1e6)
    }

    /// Derives the configuration of the encoder of text from the configuration of the model.
    pub(crate) fn text(&self, config: &ModelConfig) -> ModelConfig {
        let or = |value: usize, other: usize| if value == 0 { other } else { value };
        ModelConfig {
            d_model: or(self.text_d_model, config.d_model),
            d_ff: or(self.text_d_ff, config.d_ff),
            heads: or(self.text_heads, config.heads),
            ..config.clone()
        }
    }
}
