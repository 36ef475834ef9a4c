//! Checks that settings fit the kinds of self-attention in use.

use super::{AttentionConfig, AttentionKind};
use crate::ModelError;
use crate::config::{Positions, bounds};

impl AttentionConfig {
    /// Checks that the settings are possible and fit the rest of the model. `section` is the name
    /// of the section in the recipe (configuration file) that has these settings, and `causal`
    /// tells whether the stack is a decoder.
    pub(in crate::config) fn validate(
        &self,
        (section, causal): (&str, bool),
        layers: usize,
        positions: Positions,
    ) -> Result<(), ModelError> {
        self.validate_sizes(section)?;
        let refused = (self.refused_build(section))
            .or_else(|| self.refused_counts((section, causal), layers))
            .or_else(|| self.refused_linformer(section, causal))
            .or_else(|| self.refused_segments((section, causal), positions))
            .or_else(|| self.refused_positions(section, positions));
        refused.map_or(Ok(()), |message| Err(ModelError::Config(message)))
    }

    fn validate_sizes(&self, section: &str) -> Result<(), ModelError> {
        for (name, value) in [
            ("block", self.block),
            ("window", self.window),
            ("dilation", self.dilation),
            ("features", self.features),
            ("rank", self.rank),
            ("length", self.length),
            ("hash_rounds", self.hash_rounds),
            ("hash_buckets", self.hash_buckets),
            ("hash_chunk", self.hash_chunk),
            ("chunk", self.chunk),
            ("levels", self.levels),
            ("segment", self.segment),
        ] {
            bounds::size(&format!("{section}.{name}"), value, bounds::TOKENS)?;
        }
        Ok(())
    }

    /// Returns a message if a kind of attention in use is not compiled into this build; otherwise
    /// `None`.
    fn refused_build(&self, section: &str) -> Option<String> {
        let mut kinds = AttentionKind::ALL.into_iter().filter(|&kind| self.has(kind));
        let kind = kinds.find(|kind| !kind.is_built())?;
        Some(format!(
            "{section}.{} = \"{}\" needs the cargo feature \"kinds\", without which this program \
             was built: build it with the feature, or use \"full\" or \"sparse\"",
            self.key(),
            kind.name()
        ))
    }

    /// Returns a message if the number of hash buckets is odd, if the list of kinds does not have
    /// one kind for each layer, or if a decoder has global blocks at the end of a sequence;
    /// otherwise `None`.
    fn refused_counts(&self, (section, causal): (&str, bool), layers: usize) -> Option<String> {
        let (named, stack) = (self.kinds.0.len(), if causal { "decoder" } else { "encoder" });
        if self.hash_buckets > 1 && !self.hash_buckets.is_multiple_of(2) {
            Some(format!(
                "{section}.hash_buckets = {}: a rotation has two buckets for each of its vectors, \
                 so that it must be even, or 1",
                self.hash_buckets
            ))
        } else if named > 0 && named != layers {
            Some(format!(
                "{section}.kinds names the kinds of {named} layers, and model.{stack}_layers = \
                 {layers}: name one kind for each layer, or none"
            ))
        } else if self.has(AttentionKind::Sparse) && causal && self.global_last > 0 {
            Some(format!(
                "{section}.global_last = {}: a decoder does not know which tokens are the last, \
                 so that it must be 0 there",
                self.global_last
            ))
        } else {
            None
        }
    }

    /// Returns a message if Linformer attention is in a decoder, or if it has more sums of keys
    /// than its longest sequence has tokens; otherwise `None`.
    fn refused_linformer(&self, section: &str, causal: bool) -> Option<String> {
        if !self.has(AttentionKind::Linformer) {
            None
        } else if causal {
            Some(format!(
                "{section}.{} = \"linformer\" sums keys over the whole sequence, but a decoder \
                 must not see later tokens: use \"linear\" or \"performer\" there",
                self.key()
            ))
        } else if self.rank > self.length {
            Some(format!(
                "{section}.rank = {} is more than the {} tokens of {section}.length: there must \
                 be fewer sums than keys",
                self.rank, self.length
            ))
        } else {
            None
        }
    }

    /// Returns a message if Transformer-XL attention is in an encoder, if it has `same_length` but
    /// no memory, or if the model has positions, because this kind has relative positions of its
    /// own; otherwise `None`.
    fn refused_segments(
        &self,
        (section, causal): (&str, bool),
        positions: Positions,
    ) -> Option<String> {
        if !self.has(AttentionKind::TransformerXl) {
            None
        } else if !causal {
            Some(format!(
                "{section}.{} = \"transformer-xl\" keeps a memory of earlier segments, but an \
                 encoder sees all tokens at once: use it in decoders",
                self.key()
            ))
        } else if self.same_length && self.memory == 0 {
            Some(format!(
                "{section}.same_length = true lets a token see itself and the memory - 1 before \
                 it, and {section}.memory = 0: it must be at least 1"
            ))
        } else if positions != Positions::None {
            Some(format!(
                "{section}.{} = \"transformer-xl\" has relative positions of its own: set \
                 model.positions = \"none\", not \"{}\"",
                self.key(),
                positions.name()
            ))
        } else {
            None
        }
    }

    /// Returns a message if a kind of attention in use lacks what the positions act on, such as
    /// scores; otherwise `None`.
    fn refused_positions(&self, section: &str, positions: Positions) -> Option<String> {
        let mut kinds = AttentionKind::ALL.into_iter().filter(|&kind| self.has(kind));
        let (kind, why) = kinds.find_map(|kind| Some((kind, unsuited(kind, positions)?)))?;
        let rotary = match unsuited(kind, Positions::Rotary) {
            Some(_) => "",
            None => ", or \"rotary\"",
        };
        Some(format!(
            "{section}.{} = \"{}\" {why} model.positions = \"{}\" acts: use positions that are \
             added to embeddings (\"sinusoidal\", \"sinusoidal-halves\" or \"learned\"){rotary}",
            self.key(),
            kind.name(),
            positions.name()
        ))
    }
}

/// Returns `None` if `positions` fit a kind of attention. Otherwise returns the reason why they do
/// not: the middle part of a message of the form "KIND … POSITIONS acts".
fn unsuited(kind: AttentionKind, positions: Positions) -> Option<&'static str> {
    let act_on_scores = matches!(positions, Positions::T5 | Positions::Alibi);
    let turn = positions == Positions::Rotary;
    let (why, is_unsuited) = match kind {
        AttentionKind::Linear => ("has no scores, on which", act_on_scores || turn),
        AttentionKind::Performer => ("has no scores of single tokens, on which", act_on_scores),
        AttentionKind::Linformer => (
            "sums keys over all positions before they meet a query, so that it has no distances, \
             on which",
            act_on_scores || turn,
        ),
        AttentionKind::Reformer => {
            ("sorts tokens into chunks, which have no table of distances, on which", act_on_scores)
        }
        AttentionKind::Hierarchical => {
            ("has summaries of chunks, which are at no single distance, on which", act_on_scores)
        }
        AttentionKind::Full
        | AttentionKind::Sparse
        | AttentionKind::TransformerXl
        | AttentionKind::Mamba
        | AttentionKind::S4d => return None,
    };
    is_unsuited.then_some(why)
}
