//! Shape of a model that embeds images and texts in one space.

use super::ModelConfig;
use crate::ModelError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The encoder of text beside that of images, and the space in which both are embedded (Radford et
/// al. 2021, section 2.4). The encoder of images has `d_model`, `d_ff`, `heads` and
/// `encoder_layers`; that of text has `decoder_layers`, since its tokens see only those before
/// them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ContrastiveConfig {
    /// Dimensions of the space of images and texts.
    #[schemars(range(min = 1))]
    pub dimensions: usize,
    /// Initial divisor of similarities, which are from -1 to 1. It is trained; no similarity is
    /// multiplied by more than 100.
    #[schemars(range(min = 0.01))]
    pub temperature: f64,
    /// `d_model` of the encoder of text; 0 for that of the encoder of images.
    pub text_d_model: usize,
    /// `d_ff` of the encoder of text; 0 for that of the encoder of images.
    pub text_d_ff: usize,
    /// `heads` of the encoder of text; 0 for those of the encoder of images.
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
        if self.dimensions == 0 {
            return Err(ModelError::Config(
                "model.contrastive.dimensions = 0: it must be at least 1".to_owned(),
            ));
        }
        if !(0.01..=f64::MAX).contains(&self.temperature) {
            return Err(ModelError::Config(format!(
                "model.contrastive.temperature = {:?}: it must be at least 0.01, by which no \
                 similarity is multiplied by more than 100",
                self.temperature
            )));
        }
        Ok(())
    }

    /// Configuration of the encoder of text, from that of the whole model.
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
