//! What GPT-2's `config.json` says, and what its tensors are called.

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};
use taper_model::{ActivationKind, ModelConfig, NormPlacement, Positions, Tied};

/// The name before those of all tensors but a projection's of its own.
const PREFIX: &str = "transformer.";

/// The keys of `config.json` that shape a GPT-2; others change nothing here.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Gpt2Config {
    pub(super) model_type: String,
    #[serde(default)]
    pub(super) architectures: Vec<String>,
    pub(super) vocab_size: usize,
    pub(super) n_positions: usize,
    pub(super) n_embd: usize,
    pub(super) n_layer: usize,
    pub(super) n_head: usize,
    #[serde(default)]
    pub(super) n_inner: Option<usize>,
    #[serde(default = "gelu_new")]
    pub(super) activation_function: String,
    #[serde(default = "usual_dropout")]
    pub(super) resid_pdrop: f64,
    #[serde(default = "usual_dropout")]
    pub(super) embd_pdrop: f64,
    #[serde(default = "usual_dropout")]
    pub(super) attn_pdrop: f64,
    #[serde(default = "usual_epsilon")]
    pub(super) layer_norm_epsilon: f64,
    #[serde(default = "yes")]
    pub(super) scale_attn_weights: bool,
    #[serde(default)]
    pub(super) scale_attn_by_inverse_layer_idx: bool,
    #[serde(default)]
    pub(super) add_cross_attention: bool,
    #[serde(default = "yes")]
    pub(super) tie_word_embeddings: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) bos_token_id: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) eos_token_id: Option<u32>,
}

fn gelu_new() -> String {
    "gelu_new".to_owned()
}

fn usual_dropout() -> f64 {
    0.1
}

fn usual_epsilon() -> f64 {
    1e-5
}

fn yes() -> bool {
    true
}

impl Gpt2Config {
    /// The model that these keys describe.
    ///
    /// # Errors
    /// When it is none of ours, with the key.
    pub(super) fn model(&self) -> Result<ModelConfig> {
        for (key, is_other) in [
            ("scale_attn_weights", !self.scale_attn_weights),
            ("scale_attn_by_inverse_layer_idx", self.scale_attn_by_inverse_layer_idx),
            ("add_cross_attention", self.add_cross_attention),
        ] {
            if is_other {
                bail!("{key} has another value than GPT-2's, which this model cannot have");
            }
        }
        let activation = match self.activation_function.as_str() {
            "gelu_new" | "gelu_pytorch_tanh" => ActivationKind::GeluTanh,
            "gelu" => ActivationKind::Gelu,
            "relu" => ActivationKind::Relu,
            "silu" | "swish" => ActivationKind::Swish,
            other => {
                bail!("activation_function = {other:?}: expected gelu_new, gelu, relu or silu")
            }
        };
        Ok(ModelConfig {
            d_model: self.n_embd,
            d_ff: self.n_inner.unwrap_or(self.n_embd.saturating_mul(4)),
            heads: self.n_head,
            decoder_layers: self.n_layer,
            activation,
            norm: NormPlacement::Pre,
            norm_epsilon: self.layer_norm_epsilon,
            positions: Positions::Learned,
            max_positions: self.n_positions,
            tied: if self.tie_word_embeddings { Tied::All } else { Tied::None },
            scale_embeddings: false,
            biases: true,
            embedding_dropout: self.embd_pdrop,
            attention_dropout: self.attn_pdrop,
            feed_forward_dropout: 0.0,
            residual_dropout: self.resid_pdrop,
            ..ModelConfig::default()
        })
    }

    /// The keys of a model with a vocabulary of this size, in which `end` ends a document.
    ///
    /// # Errors
    /// When a GPT-2 cannot be such a model, with the setting.
    pub(super) fn of(model: &ModelConfig, vocabulary: usize, end: u32) -> Result<Self> {
        let activation = match model.activation {
            ActivationKind::GeluTanh => "gelu_new",
            ActivationKind::Gelu => "gelu",
            ActivationKind::Relu => "relu",
            ActivationKind::Swish => "silu",
        };
        let config = Self {
            model_type: "gpt2".to_owned(),
            architectures: vec!["GPT2LMHeadModel".to_owned()],
            vocab_size: vocabulary,
            n_positions: model.max_positions,
            n_embd: model.d_model,
            n_layer: model.decoder_layers,
            n_head: model.heads,
            n_inner: (model.d_ff != 4 * model.d_model).then_some(model.d_ff),
            activation_function: activation.to_owned(),
            resid_pdrop: model.residual_dropout,
            embd_pdrop: model.embedding_dropout,
            attn_pdrop: model.attention_dropout,
            layer_norm_epsilon: model.norm_epsilon,
            scale_attn_weights: true,
            scale_attn_by_inverse_layer_idx: false,
            add_cross_attention: false,
            tie_word_embeddings: model.tied != Tied::None,
            bos_token_id: Some(end),
            eos_token_id: Some(end),
        };
        // What GPT-2 has no key for must be as it is there. Dropout shapes no weights.
        let expressed = ModelConfig {
            encoder_layers: model.encoder_layers,
            feed_forward_dropout: model.feed_forward_dropout,
            tied: model.tied,
            ..config.model()?
        };
        let of = |model: &ModelConfig| serde_json::to_value(model);
        let (expressed, ours) = (of(&expressed)?, of(model)?);
        for (key, value) in ours.as_object().into_iter().flatten() {
            if expressed[key] != *value {
                bail!("model.{key} = {value}: a GPT-2 has {}", expressed[key]);
            }
        }
        Ok(config)
    }
}

/// What GPT-2 calls the parameter `name` of a language model, and whether its matrix is transposed
/// there.
pub(super) fn counterpart(name: &str) -> Option<(String, bool)> {
    let known = match name {
        "embedding.weight" => return Some((format!("{PREFIX}wte.weight"), false)),
        "decoder.positions.weight" => return Some((format!("{PREFIX}wpe.weight"), false)),
        "output.weight" => return Some(("lm_head.weight".to_owned(), false)),
        "decoder.final_norm.weight" => return Some((format!("{PREFIX}ln_f.weight"), false)),
        "decoder.final_norm.bias" => return Some((format!("{PREFIX}ln_f.bias"), false)),
        _ => name.strip_prefix("decoder.layers.")?,
    };
    let (layer, part) = known.split_once('.')?;
    let (module, kind) = part.rsplit_once('.')?;
    let (theirs, is_linear) = match module {
        "self_attention_norm" => ("ln_1", false),
        "self_attention.qkv" => ("attn.c_attn", true),
        "self_attention.out" => ("attn.c_proj", true),
        "feed_forward_norm" => ("ln_2", false),
        "feed_forward.up" => ("mlp.c_fc", true),
        "feed_forward.down" => ("mlp.c_proj", true),
        _ => return None,
    };
    Some((format!("{PREFIX}h.{layer}.{theirs}.{kind}"), is_linear && kind == "weight"))
}

/// The tensor `name` without what some files leave out before it.
pub(super) fn bare(name: &str) -> &str {
    name.strip_prefix(PREFIX).unwrap_or(name)
}

/// Whether a tensor is a causal mask, as older files have them beside the weights.
pub(super) fn is_mask(name: &str) -> bool {
    name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_comes_back_and_what_gpt2_is_not_is_named() {
        let model = ModelConfig {
            decoder_layers: 3,
            activation: ActivationKind::GeluTanh,
            positions: Positions::Learned,
            scale_embeddings: false,
            d_ff: 99,
            ..ModelConfig::default()
        };
        let config = Gpt2Config::of(&model, 300, 7).expect("a GPT-2");
        let back = config.model().expect("ours");
        assert_eq!(ModelConfig { feed_forward_dropout: 0.1, ..back }, model);
        for (other, key) in [
            (ModelConfig { norm: NormPlacement::Post, ..model.clone() }, "model.norm"),
            (ModelConfig { positions: Positions::Rotary, ..model.clone() }, "model.positions"),
            (ModelConfig { biases: false, ..model.clone() }, "model.biases = false"),
            (ModelConfig { scale_embeddings: true, ..model }, "model.scale_embeddings"),
        ] {
            let error = Gpt2Config::of(&other, 300, 7).expect_err("not a GPT-2").to_string();
            assert!(error.contains(key), "{error}");
        }
    }

    #[test]
    fn parameters_have_names_of_their_own_there() {
        let name = |ours| counterpart(ours).expect("known");
        assert_eq!(
            name("decoder.layers.11.self_attention.qkv.weight"),
            ("transformer.h.11.attn.c_attn.weight".to_owned(), true)
        );
        assert_eq!(
            name("decoder.layers.0.feed_forward.down.bias"),
            ("transformer.h.0.mlp.c_proj.bias".to_owned(), false)
        );
        assert_eq!(counterpart("encoder.layers.0.self_attention.out.bias"), None);
        assert!(is_mask("h.0.attn.bias") && !is_mask("h.0.attn.c_attn.bias"));
    }
}
