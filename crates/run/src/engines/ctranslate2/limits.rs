//! Models that CTranslate2 does not compute in the same way as Taper.

use taper_model::{AttentionKind, NormKind, ParallelFeedForward, Positions, RotaryScaling};

use crate::config::RunConfig;
use crate::tasks::entry;

/// First key of `[model]` whose value has no counterpart in CTranslate2; `None` if all have one.
pub(super) fn refused(config: &RunConfig) -> Option<&'static str> {
    let model = &config.model;
    let translates = entry(config.task).translates;
    let is_other = |causal: bool, layers: usize| {
        let attention = model.attention(causal);
        (0..layers).any(|layer| attention.kind_of(layer) != AttentionKind::Full)
    };
    let has_no_positions = match model.positions {
        // CTranslate2 does not add ALiBi's biases in encoders.
        Positions::Alibi => translates,
        // In a language model, CTranslate2 counts the distances between tokens of a prompt from the
        // wrong end.
        Positions::T5 => !translates,
        _ => false,
    };
    let is_unknown_scaling = model.positions == Positions::Rotary
        && matches!(model.rotary.scaling, RotaryScaling::Yarn | RotaryScaling::DualChunk);
    // CTranslate2 has feed-forward layers in parallel with attention only in decoders without an
    // encoder.
    let is_parallel = model.parallel_feed_forward != ParallelFeedForward::None;
    [
        (translates && is_parallel, "parallel_feed_forward"),
        (model.norm_kind == NormKind::RmsWithBias, "norm_kind"),
        (has_no_positions, "positions"),
        (is_unknown_scaling, "rotary.scaling"),
        (translates && is_other(false, model.encoder_layers), "encoder_attention"),
        (is_other(true, model.decoder_layers), "decoder_attention"),
        (model.heads > i16::MAX as usize, "heads"),
    ]
    .into_iter()
    .find_map(|(is_refused, key)| is_refused.then_some(key))
}
