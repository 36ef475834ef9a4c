//! State-space layers, and checks of settings that do not fit them.

use super::{ModelConfig, Positions, bounds};
use crate::ModelError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Shape of state-space layers, of the kinds `mamba` (Gu and Dao 2023) and `s4d` (Gu et al. 2022),
/// in both stacks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StateSpaceConfig {
    /// Number of channels for each element of `model.d_model`.
    #[schemars(range(min = 1))]
    #[schemars(extend("x-idle" = ["no-state-space"]))]
    pub expand: usize,
    /// Size of the state of a channel.
    #[schemars(range(min = 1))]
    #[schemars(extend("x-idle" = ["no-state-space"]))]
    pub states: usize,
    /// Tokens that the convolution before the scan sees, including the token itself.
    #[schemars(range(min = 1))]
    #[schemars(extend("x-idle" = ["no-state-space"]))]
    pub convolution: usize,
    /// Rank of the projection to the step sizes of a `mamba`; 0 for a sixteenth of `model.d_model`.
    #[schemars(extend("x-idle" = ["no-mamba"]))]
    pub step_rank: usize,
    /// Whether a feed-forward layer follows, as after attention. The paper has none: two
    /// state-space layers replace attention and a feed-forward layer.
    #[schemars(extend("x-idle" = ["no-state-space"]))]
    pub feed_forward: bool,
}

impl Default for StateSpaceConfig {
    fn default() -> Self {
        Self { expand: 2, states: 16, convolution: 4, step_rank: 0, feed_forward: false }
    }
}

impl StateSpaceConfig {
    /// Number of channels in a model of the width `width`.
    #[cfg(feature = "kinds")]
    pub(crate) fn channels(&self, width: usize) -> usize {
        self.expand.saturating_mul(width)
    }

    /// Rank of the projection to step sizes in a model of the width `width`.
    #[must_use]
    pub fn rank(&self, width: usize) -> usize {
        if self.step_rank == 0 { width.div_ceil(16) } else { self.step_rank }
    }
}

impl ModelConfig {
    /// True if the layer with the index `layer`, from 0, has a feed-forward layer. `causal` selects
    /// the decoder.
    #[must_use]
    pub fn has_feed_forward(&self, causal: bool, layer: usize) -> bool {
        self.state_space.feed_forward || !self.attention(causal).kind_of(layer).is_state_space()
    }

    /// Refuses settings that do not fit the state-space layers of a stack. `section` is the section
    /// of the recipe (configuration file) that configures the stack's attention, and `causal` tells
    /// whether the stack is the decoder.
    pub(super) fn validate_state_space(
        &self,
        (section, causal): (&str, bool),
        layers: usize,
    ) -> Result<(), ModelError> {
        let refuse = |message: String| Err(ModelError::Config(message));
        let config = &self.state_space;
        for (key, value, bounds) in [
            ("model.state_space.expand", config.expand, bounds::COUNTS),
            ("model.state_space.states", config.states, bounds::COUNTS),
            ("model.state_space.convolution", config.convolution, bounds::COUNTS),
            ("model.state_space.step_rank", config.step_rank, 0..=*bounds::WIDTHS.end()),
        ] {
            bounds::size(key, value, bounds)?;
        }
        let attention = self.attention(causal);
        // Without a list of kinds, all layers are of one kind, so one layer is enough.
        let counted = if attention.kinds.is_empty() { layers.min(1) } else { layers };
        let is_state_space = |layer| attention.kind_of(layer).is_state_space();
        let acts_on_scores = self.positions != Positions::None && !self.positions.are_added();
        if acts_on_scores && counted > 0 && (0..counted).all(is_state_space) {
            return refuse(format!(
                "all layers of {section} are state-space layers, which have no scores for \
                 model.positions = \"{}\" to act on: use \"none\", as they know the order of \
                 tokens, or positions that are added to embeddings",
                self.positions.name()
            ));
        }
        if self.experts.count > 0 && !config.feed_forward {
            let every = self.experts.every.max(1);
            let mut with_experts = (every - 1..layers).step_by(every);
            let first = if attention.kinds.is_empty() {
                with_experts.next().filter(|&layer| is_state_space(layer))
            } else {
                with_experts.find(|&layer| is_state_space(layer))
            };
            if let Some(layer) = first {
                return refuse(format!(
                    "model.experts would replace feed-forward layers, but layer {} of {section} \
                     has none: set model.state_space.feed_forward = true, or \
                     model.experts.count = 0",
                    layer + 1
                ));
            }
        }
        Ok(())
    }
}
