//! A GPT-2: what its `config.json` says, what its tensors are called, and both ways between a folder
//! and a run.

use std::path::Path;

use anyhow::{Context, Result, bail};
use candle_core::{DType, Device};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use taper_data::{Task, TokenizerKind};
use taper_model::{Builder, LanguageModel, Model, ModelConfig, NormPlacement, Positions, Tied};

use super::export::write;
use super::import::{Read, run_config};
use super::tokens::Exported;
use super::weights::{Counterpart, Tensors, named};
use super::{CONFIG, WEIGHTS, activation, activation_name, require_expressed, tokens};
use crate::LoadedRun;
use crate::checks::memory;
use crate::generation::beginning;

/// The name before those of all tensors but a projection's of its own.
const PREFIX: &str = "transformer.";
/// That projection.
const HEAD: &str = "lm_head.weight";

/// The keys of `config.json` that shape a GPT-2; others change nothing here.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Gpt2Config {
    model_type: String,
    #[serde(default)]
    architectures: Vec<String>,
    vocab_size: usize,
    n_positions: usize,
    n_embd: usize,
    n_layer: usize,
    n_head: usize,
    #[serde(default)]
    n_inner: Option<usize>,
    #[serde(default = "gelu_new")]
    activation_function: String,
    #[serde(default = "usual_dropout")]
    resid_pdrop: f64,
    #[serde(default = "usual_dropout")]
    embd_pdrop: f64,
    #[serde(default = "usual_dropout")]
    attn_pdrop: f64,
    #[serde(default = "usual_epsilon")]
    layer_norm_epsilon: f64,
    #[serde(default = "yes")]
    scale_attn_weights: bool,
    #[serde(default)]
    scale_attn_by_inverse_layer_idx: bool,
    #[serde(default)]
    add_cross_attention: bool,
    #[serde(default = "yes")]
    tie_word_embeddings: bool,
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
    fn model(&self) -> Result<ModelConfig> {
        for (key, is_other) in [
            ("scale_attn_weights", !self.scale_attn_weights),
            ("scale_attn_by_inverse_layer_idx", self.scale_attn_by_inverse_layer_idx),
            ("add_cross_attention", self.add_cross_attention),
        ] {
            if is_other {
                bail!("{key} has another value than GPT-2's, which this model cannot have");
            }
        }
        Ok(ModelConfig {
            d_model: self.n_embd,
            d_ff: self.n_inner.unwrap_or(self.n_embd.saturating_mul(4)),
            heads: self.n_head,
            decoder_layers: self.n_layer,
            activation: activation("activation_function", &self.activation_function)?,
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

    /// The keys of a model with a vocabulary of this size.
    ///
    /// # Errors
    /// When a GPT-2 cannot be such a model, with the setting.
    fn of(model: &ModelConfig, vocabulary: usize) -> Result<Self> {
        let config = Self {
            model_type: "gpt2".to_owned(),
            architectures: vec!["GPT2LMHeadModel".to_owned()],
            vocab_size: vocabulary,
            n_positions: model.max_positions,
            n_embd: model.d_model,
            n_layer: model.decoder_layers,
            n_head: model.heads,
            n_inner: (model.d_ff != 4 * model.d_model).then_some(model.d_ff),
            activation_function: activation_name(model.activation),
            resid_pdrop: model.residual_dropout,
            embd_pdrop: model.embedding_dropout,
            attn_pdrop: model.attention_dropout,
            layer_norm_epsilon: model.norm_epsilon,
            scale_attn_weights: true,
            scale_attn_by_inverse_layer_idx: false,
            add_cross_attention: false,
            tie_word_embeddings: model.tied != Tied::None,
        };
        // What GPT-2 has no key for must be as it is there. Dropout shapes no weights.
        let expressed = ModelConfig {
            encoder_layers: model.encoder_layers,
            feed_forward_dropout: model.feed_forward_dropout,
            tied: model.tied,
            ..config.model()?
        };
        require_expressed("GPT-2", &expressed, model)?;
        Ok(config)
    }
}

/// What GPT-2 has for the parameter `name` of a language model.
fn counterpart(name: &str, shape: &[usize]) -> Option<Counterpart> {
    let known = match name {
        "embedding.weight" => return Some(Counterpart::same(format!("{PREFIX}wte.weight"), shape)),
        "decoder.positions.weight" => {
            return Some(Counterpart::same(format!("{PREFIX}wpe.weight"), shape));
        }
        "output.weight" => return Some(Counterpart::same(HEAD, shape)),
        "decoder.final_norm.weight" => {
            return Some(Counterpart::same(format!("{PREFIX}ln_f.weight"), shape));
        }
        "decoder.final_norm.bias" => {
            return Some(Counterpart::same(format!("{PREFIX}ln_f.bias"), shape));
        }
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
    let one = Counterpart::same(format!("{PREFIX}h.{layer}.{theirs}.{kind}"), shape);
    Some(one.transposed(is_linear && kind == "weight"))
}

/// The tensor `name` with what some files leave out before it.
fn whole_name(name: &str) -> String {
    match name == HEAD || name.starts_with(PREFIX) {
        true => name.to_owned(),
        false => format!("{PREFIX}{name}"),
    }
}

/// Whether a tensor is a causal mask, as older files have them beside the weights.
fn is_mask(name: &str) -> bool {
    name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias")
}

/// The GPT-2 of a folder, as a run called `name`: documents end with what the tokenizer has for it,
/// and blocks are as long as positions reach.
///
/// # Errors
/// When a file is missing or damaged, the model is not one of ours, or the tensors are not those of
/// `config.json`.
pub(super) fn read(source: &Path, name: String, keys: Value) -> Result<Read<LanguageModel>> {
    let path = source.join(CONFIG);
    let shown = || path.display().to_string();
    let theirs: Gpt2Config = serde_json::from_value(keys)
        .with_context(|| format!("{}: not the config.json of a GPT-2", path.display()))?;
    let model = theirs.model().with_context(shown)?;
    let tokenizers = tokens::read(source, theirs.vocab_size)?;
    let mut config = run_config(name, Task::LanguageModel, model);
    config.data.tokenizer.kind = TokenizerKind::Bytes;
    config.data.tokenizer.vocabulary_size = theirs.vocab_size;
    config.data.text.block_length = theirs.n_positions;
    config.validate().with_context(shown)?;
    memory::require_weights(&config, (theirs.vocab_size, theirs.vocab_size), &Device::Cpu)?;
    let model = LanguageModel::new(
        &config.model,
        theirs.vocab_size,
        Builder::zeroed(&Device::Cpu, DType::F32),
    )?;
    let weights = source.join(WEIGHTS);
    let sha256 = fill(&model, &weights).with_context(|| weights.display().to_string())?;
    Ok(Read { config, tokenizers, model, sha256 })
}

/// Sets the parameters of `model` from the file `path`, and gives the hash of the file.
fn fill(model: &LanguageModel, path: &Path) -> Result<String> {
    let mut tensors = Tensors::read(path, whole_name)?;
    tensors.fill(model.parameters(), counterpart)?;
    tensors.leave_out(is_mask);
    // Some files have the tied projection a second time.
    tensors.take_copy(HEAD, model.parameters().get("embedding.weight"))?;
    tensors.require_none_left("GPT-2")?;
    Ok(tensors.sha256)
}

/// Writes the language model of `run` into `folder` as Transformers' `GPT2LMHeadModel`, which must
/// be no folder yet or an empty one.
///
/// # Errors
/// When a GPT-2 cannot be such a model, or the folder cannot be written.
pub fn export_gpt2(run: &LoadedRun<LanguageModel>, folder: &Path) -> Result<()> {
    let tokenizer = run.tokenizers.target();
    let config = Gpt2Config::of(run.model.config(), run.model.vocabulary())
        .context("cannot be exported as a GPT-2")?;
    let tensors = named(run.model.parameters(), "GPT-2", counterpart)?;
    let start = match beginning(tokenizer, run.config.data.text.documents).as_deref() {
        Ok(&[start]) => start,
        _ => tokenizer.end(),
    };
    let exported = Exported::Writes { start, sampling: &run.config.decoding.sampling };
    let longest = config.n_positions;
    write(folder, &tensors, (&config, exported.ids(tokenizer)), |folder| {
        tokens::write(folder, tokenizer, exported, longest)
    })
}

#[cfg(test)]
mod tests {
    use taper_model::ActivationKind;

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
        let config = Gpt2Config::of(&model, 300).expect("a GPT-2");
        let back = config.model().expect("ours");
        assert_eq!(ModelConfig { feed_forward_dropout: 0.1, ..back }, model);
        for (other, key) in [
            (ModelConfig { norm: NormPlacement::Post, ..model.clone() }, "model.norm"),
            (ModelConfig { positions: Positions::Rotary, ..model.clone() }, "model.positions"),
            (ModelConfig { biases: false, ..model.clone() }, "model.biases = false"),
            (ModelConfig { scale_embeddings: true, ..model }, "model.scale_embeddings"),
        ] {
            let error = Gpt2Config::of(&other, 300).expect_err("not a GPT-2").to_string();
            assert!(error.contains(key), "{error}");
        }
    }

    #[test]
    fn parameters_have_names_of_their_own_there() {
        let weight = counterpart("decoder.layers.11.self_attention.qkv.weight", &[6, 2]).unwrap();
        assert_eq!(weight.names, ["transformer.h.11.attn.c_attn.weight"]);
        assert_eq!((weight.shape.as_slice(), weight.transposed), ([2, 6].as_slice(), true));
        let bias = counterpart("decoder.layers.0.feed_forward.down.bias", &[2]).unwrap();
        assert_eq!(bias.names, ["transformer.h.0.mlp.c_proj.bias"]);
        assert!(!bias.transposed);
        assert!(counterpart("encoder.layers.0.self_attention.out.bias", &[2]).is_none());
        assert_eq!(whole_name("h.0.ln_1.bias"), whole_name("transformer.h.0.ln_1.bias"));
        assert!(is_mask("h.0.attn.bias") && !is_mask("h.0.attn.c_attn.bias"));
    }
}
