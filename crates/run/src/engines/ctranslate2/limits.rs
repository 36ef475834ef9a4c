//! Refusal of models that CTranslate2 does not compute like Taper.

use anyhow::{Result, bail};
use serde_json::Value;
use taper_model::{AttentionKind, ModelConfig, NormKind, Positions, RotaryScaling};

use crate::config::RunConfig;
use crate::tasks::entry;

/// Keys of `[model]` whose values all have a counterpart in CTranslate2, are checked one by one, or
/// play no part in such a model. Any other key must be at its default.
const EXPRESSED: &[&str] = &[
    "d_model",
    "d_ff",
    "heads",
    "key_value_heads",
    "head_width",
    "attention_scale",
    "encoder_layers",
    "decoder_layers",
    "activation",
    "feed_forward",
    "norm",
    "norm_kind",
    "norm_epsilon",
    "positions",
    "rotary",
    "max_positions",
    "position_offset",
    "sinusoid_frequencies",
    "relative_buckets",
    "relative_distance",
    "segments",
    "image_encoder",
    "pooling",
    "tied",
    "scale_embeddings",
    "embedding_norm",
    "biases",
    "attention_biases",
    "feed_forward_biases",
    "query_key_value_biases",
    "attention_output_biases",
    "output_bias",
    "embedding_dropout",
    "attention_dropout",
    "feed_forward_dropout",
    "residual_dropout",
    "final_dropout",
    "encoder_attention",
    "decoder_attention",
    "recurrent",
    "convolutional",
    "state_space",
    "embeddings",
    "contrastive",
];

/// Refuses a model that CTranslate2 does not compute.
///
/// # Errors
/// With the key.
pub(super) fn require_expressed(config: &RunConfig) -> Result<()> {
    let (ours, usual) = (serde_json::to_value(&config.model)?, ModelConfig::default());
    let usual = serde_json::to_value(&usual)?;
    let others = ours.as_object().into_iter().flatten();
    let mut others = others
        .filter(|(key, value)| !EXPRESSED.contains(&key.as_str()) && usual[*key] != **value)
        .map(|(key, _)| key.as_str());
    let Some(key) = refused(config).or_else(|| others.next()) else { return Ok(()) };
    let mut value = &ours;
    for part in key.split('.') {
        value = &value[part];
    }
    let value = match value {
        Value::Object(section) if section.contains_key("kind") => section
            .get("kinds")
            .filter(|kinds| **kinds != Value::Array(Vec::new()))
            .unwrap_or(&section["kind"]),
        value => value,
    };
    bail!("model.{key} = {value} cannot be exported for CTranslate2, which has no such models")
}

/// Key of `[model]` with a value that has no counterpart in CTranslate2.
fn refused(config: &RunConfig) -> Option<&'static str> {
    let model = &config.model;
    let translates = entry(config.task).translates;
    let is_other = |causal: bool, layers: usize| {
        let attention = model.attention(causal);
        (0..layers).any(|layer| attention.kind_of(layer) != AttentionKind::Full)
    };
    let has_no_positions = match model.positions {
        // The engine adds no such biases in encoders.
        Positions::Alibi => translates,
        // It counts the distances of a prompt from the wrong end.
        Positions::T5 => !translates,
        _ => false,
    };
    let is_yarn =
        model.positions == Positions::Rotary && model.rotary.scaling == RotaryScaling::Yarn;
    [
        (model.norm_kind == NormKind::RmsWithBias, "norm_kind"),
        (has_no_positions, "positions"),
        (is_yarn, "rotary.scaling"),
        (translates && is_other(false, model.encoder_layers), "encoder_attention"),
        (is_other(true, model.decoder_layers), "decoder_attention"),
        (model.heads > i16::MAX as usize, "heads"),
    ]
    .into_iter()
    .find_map(|(is_refused, key)| is_refused.then_some(key))
}
