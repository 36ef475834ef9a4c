//! Check before a model is exported to another program (an engine): a model that the engine does
//! not compute in the same way as Taper is refused.

use anyhow::{Result, bail};
use serde_json::Value;
use taper_model::ModelConfig;

use crate::config::RunConfig;

/// Keys of a recipe's section `[model]` that [`require_expressed`] accepts with any value. A key is
/// in this list for one of three reasons: every engine can compute the model for each value of the
/// key; each engine that cannot do so checks the key itself, in its own module; or the key has no
/// effect in models that translate or generate text, and no other models are exported. For all
/// other keys, see [`EXPRESSED_KINDS`] and [`require_expressed`].
const EXPRESSED: &[&str] = &[
    "d_model",
    "d_ff",
    "heads",
    "key_value_heads",
    "head_width",
    "attention_scale",
    "encoder_layers",
    "decoder_layers",
    "norm_epsilon",
    "rotary",
    "max_positions",
    "position_offset",
    "sinusoid_frequencies",
    "relative_buckets",
    "relative_distance",
    "relative_by_layer",
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

/// Keys of `[model]` that [`require_expressed`] accepts only with the values in this list. Each of
/// these values is computed by every engine, or is checked by the modules of the engines that do
/// not compute it.
const EXPRESSED_KINDS: &[(&str, &[&str])] = &[
    ("activation", &["relu", "gelu", "gelu-tanh", "swish", "quick-gelu"]),
    ("feed_forward", &["plain", "gated"]),
    ("norm", &["pre", "post"]),
    ("parallel_feed_forward", &["none", "shared-norm", "own-norm"]),
    ("norm_kind", &["layer", "layer-without-bias", "rms", "rms-with-bias"]),
    ("positions", &["sinusoidal", "sinusoidal-halves", "learned", "t5", "rotary", "alibi", "none"]),
];

/// Refuses a model that the engine called `engine` does not compute in the same way as Taper.
/// `refused` is a key that the engine's own check refuses, or `None` if that check accepts all
/// keys. A key is also refused if its value is not the default and if neither [`EXPRESSED`] nor
/// [`EXPRESSED_KINDS`] nor `more` accepts it. `more` has the further keys that this engine accepts
/// with any value.
///
/// # Errors
/// If the engine does not compute the model in the same way. The error names a key.
pub(super) fn require_expressed(
    config: &RunConfig,
    engine: &str,
    more: &[&str],
    refused: Option<&'static str>,
) -> Result<()> {
    let (ours, usual) = (serde_json::to_value(&config.model)?, ModelConfig::default());
    let usual = serde_json::to_value(&usual)?;
    let others = ours.as_object().into_iter().flatten();
    let mut others = others
        .filter(|(key, value)| {
            usual[*key] != **value && !more.contains(&key.as_str()) && !is_expressed(key, value)
        })
        .map(|(key, _)| key.as_str());
    let Some(key) = refused.or_else(|| others.next()) else { return Ok(()) };
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
    bail!("model.{key} = {value} cannot be exported for {engine}, which has no such models")
}

/// Whether [`EXPRESSED`] or [`EXPRESSED_KINDS`] accepts the value `value` of the key `key`.
fn is_expressed(key: &str, value: &Value) -> bool {
    let mut kinds = EXPRESSED_KINDS.iter().filter(|(expressed_key, _)| *expressed_key == key);
    EXPRESSED.contains(&key) || kinds.any(|(_, kinds)| kinds.iter().any(|kind| value == kind))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_kind_that_no_engine_knows_is_refused() {
        for &(key, kinds) in EXPRESSED_KINDS {
            for &kind in kinds {
                let mut model = serde_json::to_value(ModelConfig::default()).unwrap();
                model[key] = json!(kind);
                assert!(serde_json::from_value::<ModelConfig>(model).is_ok(), "{key} {kind}");
                assert!(is_expressed(key, &json!(kind)));
            }
            assert!(!is_expressed(key, &json!("new")));
        }
    }
}
