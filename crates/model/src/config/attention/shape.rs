//! Shape of attention layers: their heads, the width of a head, the factor of scores, and biases.

use super::AttentionKind;
use crate::ModelError;
use crate::config::{ModelConfig, Positions, bounds};
use taper_ops::AttentionShape;

impl ModelConfig {
    /// Shape of the model's attention layers.
    #[must_use]
    pub fn attention_shape(&self) -> AttentionShape {
        let plain = match self.head_width {
            Some(head_width) => AttentionShape::with_heads(self.heads, head_width),
            None => AttentionShape::dividing(self.d_model, self.heads),
        };
        AttentionShape {
            key_value_heads: self.key_value_heads.unwrap_or(plain.key_value_heads),
            scale: self.attention_scale.unwrap_or(plain.scale),
            ..plain
        }
    }

    /// True if the projections to queries, keys and values have biases.
    #[must_use]
    pub fn has_query_key_value_biases(&self) -> bool {
        self.query_key_value_biases.unwrap_or(self.biases && self.attention_biases)
    }

    /// Whether the output projection of attention has biases.
    #[must_use]
    pub fn has_attention_output_biases(&self) -> bool {
        self.attention_output_biases.unwrap_or(self.biases && self.attention_biases)
    }

    /// Checks the heads, and that every kind of attention in use supports them.
    pub(in crate::config) fn validate_attention_shape(&self) -> Result<(), ModelError> {
        let refuse = |message: String| Err(ModelError::Config(message));
        bounds::size("model.heads", self.heads, bounds::WIDTHS)?;
        for (key, value) in
            [("model.key_value_heads", self.key_value_heads), ("model.head_width", self.head_width)]
        {
            value.map_or(Ok(()), |value| bounds::size(key, value, bounds::WIDTHS))?;
        }
        if let Some(scale) = self.attention_scale {
            bounds::number("model.attention_scale", scale, 1e-6..=1e6)?;
        }
        let shape = self.attention_shape();
        bounds::size("model.heads * model.head_width", shape.query_width(), bounds::WIDTHS)?;
        if self.head_width.is_none() && !self.d_model.is_multiple_of(self.heads) {
            return refuse(format!(
                "model.heads = {} does not divide model.d_model = {}: change one of them, or set \
                 model.head_width",
                self.heads, self.d_model
            ));
        }
        if !self.heads.is_multiple_of(shape.key_value_heads) {
            return refuse(format!(
                "model.key_value_heads = {} does not divide model.heads = {}: equally many heads \
                 of queries must share each of them",
                shape.key_value_heads, self.heads
            ));
        }
        if self.positions == Positions::Rotary && !shape.head_width.is_multiple_of(2) {
            let width = match self.head_width {
                Some(_) => "model.head_width",
                None => "model.d_model / model.heads",
            };
            return refuse(format!(
                "model.positions = \"rotary\" needs an even width of a head, and {width} is {}",
                shape.head_width
            ));
        }
        self.validate_kinds_of_shape(shape)
    }

    /// Refuses heads that are not the usual ones (in their keys and values, width, scale or norm)
    /// if a kind of attention in use does not support them.
    fn validate_kinds_of_shape(&self, shape: AttentionShape) -> Result<(), ModelError> {
        let usual = AttentionShape::dividing(self.d_model, self.heads);
        let unusual = if shape.key_value_heads != usual.key_value_heads {
            "model.key_value_heads"
        } else if shape.head_width != usual.head_width {
            "model.head_width"
        } else if shape.scale != usual.scale {
            "model.attention_scale"
        } else if !self.query_key_norm.is_none() {
            "model.query_key_norm"
        } else {
            return Ok(());
        };
        let supports = |kind| match kind {
            AttentionKind::Full | AttentionKind::Sparse => true,
            kind => kind.is_state_space(),
        };
        for (section, causal) in
            [("model.encoder_attention", false), ("model.decoder_attention", true)]
        {
            let attention = self.attention(causal);
            let mut kinds = AttentionKind::ALL.into_iter().filter(|&kind| attention.has(kind));
            if let Some(kind) = kinds.find(|&kind| !supports(kind)) {
                return Err(ModelError::Config(format!(
                    "{section} is of the kind \"{}\", and {unusual} is for \"full\" and \
                     \"sparse\" attention: leave it out, or change the kind",
                    kind.name()
                )));
            }
        }
        Ok(())
    }
}
