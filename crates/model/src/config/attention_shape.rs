//! Shape of attention layers: heads, their width, and the factor of scores.

use super::ModelConfig;
use taper_ops::AttentionShape;

impl ModelConfig {
    /// Shape of the model's attention layers.
    #[must_use]
    pub fn attention_shape(&self) -> AttentionShape {
        AttentionShape::dividing(self.d_model, self.heads)
    }
}
