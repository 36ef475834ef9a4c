//! Models as the library Transformers keeps them in a folder: `config.json`, `model.safetensors`,
//! `tokenizer.json`.
//!
//! GPT-2 (Radford et al. 2019) is a language model of ours with some settings, so that a folder of
//! it becomes a run, and a run of that shape a folder. So are BERT (Devlin et al. 2019), which
//! becomes a masked language model, a classifier or a reader of spans, and ViT (Dosovitskiy et al. 2021), whose folder
//! has `preprocessor_config.json` in place of a tokenizer. Weights are copied, transposed or put
//! together: both ways change no bit.

mod bert;
mod export;
mod gpt2;
mod import;
mod preprocessor;
mod tokens;
mod vit;
mod weights;

use anyhow::{Result, bail};
use taper_model::{ActivationKind, ModelConfig};

pub use bert::{export_bert, export_bert_classifier, export_bert_span_extractor};
pub use gpt2::export_gpt2;
pub use import::{Imported, import};
pub use vit::export_vit;

/// The file of the weights.
const WEIGHTS: &str = "model.safetensors";
/// The file of the shape.
const CONFIG: &str = "config.json";

/// The activation that the key `key` names.
fn activation(key: &str, name: &str) -> Result<ActivationKind> {
    Ok(match name {
        "gelu" => ActivationKind::Gelu,
        "gelu_new" | "gelu_pytorch_tanh" => ActivationKind::GeluTanh,
        "relu" => ActivationKind::Relu,
        "silu" | "swish" => ActivationKind::Swish,
        "quick_gelu" => ActivationKind::QuickGelu,
        other => bail!("{key} = {other:?}: expected gelu, gelu_new, quick_gelu, relu or silu"),
    })
}

/// What Transformers calls an activation.
fn activation_name(activation: ActivationKind) -> String {
    let name = match activation {
        ActivationKind::Gelu => "gelu",
        ActivationKind::GeluTanh => "gelu_new",
        ActivationKind::Relu => "relu",
        ActivationKind::Swish => "silu",
        ActivationKind::QuickGelu => "quick_gelu",
    };
    name.to_owned()
}

/// Refuses a model of ours that is not the one its `config.json` expresses.
///
/// # Errors
/// With the first key that differs.
fn require_expressed(what: &str, expressed: &ModelConfig, ours: &ModelConfig) -> Result<()> {
    let (expressed, ours) = (serde_json::to_value(expressed)?, serde_json::to_value(ours)?);
    for (key, value) in ours.as_object().into_iter().flatten() {
        if expressed[key] != *value {
            bail!("model.{key} = {value}: a {what} has {}", expressed[key]);
        }
    }
    Ok(())
}
