//! The shape of a model of images and texts that meet in one space.

use super::{ModelConfig, bounds};
use crate::ModelError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The encoder of text beside that of images, and the space in which the two meet (Radford et al.
/// 2021, section 2.4). What reads images has `d_model`, `d_ff`, `heads` and `encoder_layers`; what
/// reads text has `decoder_layers`, since a token sees those before it alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ContrastiveConfig {
    /// Dimensions of the space in which images and texts meet.
    #[schemars(range(min = 1))]
    pub dimensions: usize,
    /// What similarities, which are from -1 to 1, are divided by at first. It is trained; no
    /// similarity is multiplied by more than 100.
    #[schemars(range(min = 0.01))]
    pub temperature: f64,
    /// `d_model` of the encoder of text; 0 for that of images.
    pub text_d_model: usize,
    /// `d_ff` of the encoder of text; 0 for that of images.
    pub text_d_ff: usize,
    /// `heads` of the encoder of text; 0 for those of images.
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
    /// Names the key, its value and what it must be.
    pub(super) fn validate(&self) -> Result<(), ModelError> {
        bounds::size("model.contrastive.dimensions", self.dimensions, bounds::WIDTHS)?;
        for (key, value) in [
            ("model.contrastive.text_d_model", self.text_d_model),
            ("model.contrastive.text_d_ff", self.text_d_ff),
            ("model.contrastive.text_heads", self.text_heads),
        ] {
            bounds::size(key, value, 0..=*bounds::WIDTHS.end())?;
        }
        // By the least no similarity is multiplied by more than 100.
        bounds::number("model.contrastive.temperature", self.temperature, 0.01..=1e6)
    }

    /// The encoder of text, of which `config` is the model.
    pub(crate) fn text(&self, config: &ModelConfig) -> ModelConfig {
        let or = |own: usize, other: usize| if own == 0 { other } else { own };
        ModelConfig {
            d_model: or(self.text_d_model, config.d_model),
            d_ff: or(self.text_d_ff, config.d_ff),
            heads: or(self.text_heads, config.heads),
            ..config.clone()
        }
    }
}
