//! Groups of layers with equal settings in a stack.

use super::{Architecture, ModelConfig};

impl ModelConfig {
    /// Returns the groups of layers with equal settings in a stack of `layers` layers: for each
    /// group, the index of its first layer, from 0, and the number of its layers. `causal` selects
    /// the decoder's attention settings.
    #[must_use]
    pub fn groups(&self, causal: bool, layers: usize) -> Vec<(usize, usize)> {
        let attention = self.attention(causal);
        let mut groups: Vec<(usize, usize)> = Vec::new();
        match (self.architecture, layers) {
            (Architecture::Transformer, _) => {}
            (Architecture::Convolutional, _) | (_, 0) => return vec![(0, layers)],
            // The first layer differs because it reads embeddings, and the last because the last
            // layer of a decoder can have attention.
            (Architecture::Recurrent, 1) => return vec![(0, 1)],
            (Architecture::Recurrent, 2) => return vec![(0, 1), (1, 1)],
            (Architecture::Recurrent, _) => {
                return vec![(0, 1), (1, layers - 2), (layers - 1, 1)];
            }
        }
        // Without a list of kinds, the settings of the layers repeat with the period of the
        // experts, so it is enough to look at one period. To look at every layer could take
        // unreasonably long, because a recipe (configuration file) can set any number of layers.
        let period = if self.experts.count == 0 { 1 } else { self.experts.every.max(1) };
        let counted = if attention.kinds.is_empty() { layers.min(period) } else { layers };
        for layer in 0..counted {
            let like = |&&mut (other, _): &&mut (usize, usize)| {
                attention.kind_of(other) == attention.kind_of(layer)
                    && self.experts.are_in(other) == self.experts.are_in(layer)
            };
            let count = match counted == layers {
                true => 1,
                false => (layers - layer).div_ceil(period),
            };
            match groups.iter_mut().find(like) {
                Some((_, total)) => *total += count,
                None => groups.push((layer, count)),
            }
        }
        groups
    }
}
