//! Checks of a configuration as a whole, and the sequence lengths that it allows.

use super::{Architecture, AttentionKind, ModelConfig, NormPlacement, Positions, bounds};
use crate::ModelError;

impl ModelConfig {
    /// Checks that the fields describe a possible encoder-decoder model. `joint_vocabulary` tells
    /// whether source and target have one vocabulary.
    ///
    /// # Errors
    /// If they do not; the error names the field, its value and the requirement.
    pub fn validate(&self, joint_vocabulary: bool) -> Result<(), ModelError> {
        match self.architecture {
            Architecture::Transformer => self.validate_blocks()?,
            Architecture::Recurrent | Architecture::Convolutional => self.validate_layers()?,
        }
        bounds::size("model.encoder_layers", self.encoder_layers, bounds::COUNTS)?;
        bounds::size("model.decoder_layers", self.decoder_layers, bounds::COUNTS)?;
        let refuse = |message: &str| Err(ModelError::Config(message.to_owned()));
        if self.tied.ties_embeddings() && !joint_vocabulary {
            return refuse(&format!(
                "model.tied = \"{}\" needs one vocabulary for both languages: set \
                 data.tokenizer.joint = true, or model.tied = \"decoder\"",
                self.tied.name()
            ));
        }
        Ok(())
    }

    /// Checks that the fields describe a possible Transformer with at most one vocabulary.
    pub(crate) fn validate_transformer(&self) -> Result<(), ModelError> {
        self.require_transformer()?;
        self.validate(true)
    }

    /// Checks that the fields describe possible Transformer layers, for any model that consists of
    /// them.
    pub(crate) fn validate_blocks(&self) -> Result<(), ModelError> {
        self.validate_streams()?;
        bounds::size("model.d_ff", self.d_ff, bounds::WIDTHS)?;
        self.validate_attention_shape()?;
        self.validate_parallel()?;
        self.experts.validate()?;
        self.rotary.validate(self.attention_shape().head_width)?;
        self.validate_dual_chunk()?;
        self.validate_relative()?;
        for (name, causal, layers) in [
            ("model.encoder_attention", false, self.encoder_layers),
            ("model.decoder_attention", true, self.decoder_layers),
        ] {
            self.attention(causal).validate((name, causal), layers, self.positions)?;
            self.validate_distances(name, causal)?;
            self.validate_state_space((name, causal), layers)?;
        }
        Ok(())
    }

    /// Refuses Transformer-XL attention of an odd width: distances are encoded in pairs of columns,
    /// a sine and a cosine each.
    fn validate_distances(&self, section: &str, causal: bool) -> Result<(), ModelError> {
        let attention = self.attention(causal);
        if self.d_model.is_multiple_of(2) || !attention.has(AttentionKind::TransformerXl) {
            return Ok(());
        }
        Err(ModelError::Config(format!(
            "{section}.{} = \"transformer-xl\" encodes distances by pairs of sines and cosines: it \
             needs an even model.d_model, not {}",
            attention.key(),
            self.d_model
        )))
    }

    /// Refuses a feed-forward layer in parallel with self-attention if norms follow the sublayers.
    fn validate_parallel(&self) -> Result<(), ModelError> {
        if self.parallel_feed_forward.is_none() || self.norm == NormPlacement::Pre {
            return Ok(());
        }
        Err(ModelError::Config(
            "model.parallel_feed_forward sums layers that read one normalised input, and with \
             model.norm = \"post\" no input is normalised: set model.norm = \"pre\", or leave \
             model.parallel_feed_forward out"
                .to_owned(),
        ))
    }

    /// Refuses dual chunk attention (rotary positions that restart in each chunk of tokens) for
    /// kinds of attention that cannot rotate a query differently for the keys of different chunks.
    fn validate_dual_chunk(&self) -> Result<(), ModelError> {
        if self.positions != Positions::Rotary || self.rotary.dual_chunk().is_none() {
            return Ok(());
        }
        let unsuited =
            [AttentionKind::Performer, AttentionKind::Reformer, AttentionKind::Hierarchical];
        match unsuited.into_iter().find(|&kind| self.decoder_attention.has(kind)) {
            None => Ok(()),
            Some(kind) => Err(ModelError::Config(format!(
                "model.rotary.scaling = \"dual-chunk\" rotates a query anew for chunks of keys, which \
                 \"{}\" does not see apart: use \"full\" or \"sparse\" attention, or another scaling",
                kind.name()
            ))),
        }
    }

    /// Checks the fields that matter to every architecture: widths, positions and dropout rates.
    pub(super) fn validate_streams(&self) -> Result<(), ModelError> {
        let refuse = |message: String| Err(ModelError::Config(message));
        for (key, value, bounds) in [
            ("model.d_model", self.d_model, bounds::WIDTHS),
            ("model.max_positions", self.max_positions, bounds::TOKENS),
            ("model.position_offset", self.position_offset, 0..=*bounds::COUNTS.end()),
            ("model.segments", self.segments, 1..=2),
            ("model.recurrent.width", self.recurrent.width, bounds::WIDTHS),
            ("model.convolutional.kernel", self.convolutional.kernel, bounds::COUNTS),
        ] {
            bounds::size(key, value, bounds)?;
        }
        bounds::number("model.norm_epsilon", self.norm_epsilon, bounds::EPSILONS)?;
        if let Some(scale) = self.output_scale {
            bounds::number("model.output_scale", scale, 1e-6..=1e6)?;
        }
        if self.architecture != Architecture::Recurrent
            && self.positions.are_sinusoids()
            && !self.d_model.is_multiple_of(2)
        {
            return refuse(format!(
                "sinusoidal model.positions need an even model.d_model, not {}",
                self.d_model
            ));
        }
        for (name, rate) in [
            ("embedding_dropout", self.embedding_dropout),
            ("attention_dropout", self.attention_dropout),
            ("feed_forward_dropout", self.feed_forward_dropout),
            ("residual_dropout", self.residual_dropout),
            ("final_dropout", self.final_dropout),
        ] {
            if !(0.0..1.0).contains(&rate) {
                return refuse(format!(
                    "model.{name} = {rate:?} is not a rate: it must be at least 0 and below 1"
                ));
            }
        }
        self.contrastive.validate()?;
        self.lora.validate()?;
        self.embeddings.validate()
    }

    /// Number of rows of a learned position table.
    #[must_use]
    pub fn position_rows(&self) -> usize {
        self.max_positions.saturating_add(self.position_offset)
    }

    /// Largest number of tokens of a sequence, including `<s>` or `</s>`; `None` if positions have
    /// no limit.
    #[must_use]
    pub fn longest_sequence(&self) -> Option<usize> {
        let has_positions = self.architecture != Architecture::Recurrent;
        (has_positions && self.positions == Positions::Learned).then_some(self.max_positions)
    }

    /// Largest number of tokens of a sequence that an encoder reads, and the key that sets this
    /// limit; `None` if there is no limit. Linformer attention has a limit of its own, in addition
    /// to the limit of learned positions.
    #[must_use]
    pub fn longest_encoded(&self) -> Option<(usize, &'static str)> {
        let attention = &self.encoder_attention;
        let has_end = self.architecture == Architecture::Transformer
            && attention.has(AttentionKind::Linformer);
        let of_kind = has_end.then_some((attention.length, "model.encoder_attention.length"));
        let of_positions = self.longest_sequence().map(|most| (most, "model.max_positions"));
        of_positions.into_iter().chain(of_kind).min_by_key(|&(most, _)| most)
    }
}
