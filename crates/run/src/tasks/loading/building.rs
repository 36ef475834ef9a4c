//! Building of the models that recipes (configurations) describe.

use anyhow::{Context, Result};
use candle_core::Device;
use taper_data::TokenizerPair;
use taper_model::Builder;

use crate::checks::{device, memory};
use crate::config::RunConfig;
use crate::tasks::{TaskModel, vocabularies};
use crate::{parameter_groups, word_vectors};

/// Builds the model that `config` describes on `device`. `seed`: seed for random initial
/// parameters, or `None` for parameters that are zero until they are loaded.
///
/// # Errors
/// If the device cannot compute in the type that `config` names, or the model cannot be built.
pub fn build_model<M: TaskModel>(
    config: &RunConfig,
    tokenizers: &TokenizerPair,
    device: &Device,
    seed: Option<u64>,
) -> Result<M> {
    let vocabularies = vocabularies(tokenizers);
    let dtype = device::dtype(&config.dtype, device)?;
    memory::require_weights(config, vocabularies, device)?;
    let builder = match seed {
        Some(seed) => Builder::seeded(seed, device, dtype),
        None => Builder::zeroed(device, dtype),
    };
    let builder = builder.with_adapters(&config.model.lora);
    let model = M::build(config, vocabularies, builder).context("cannot build the model")?;
    word_vectors::freeze(&config.model.embeddings, tokenizers, model.parameters())?;
    parameter_groups::apply(&config.training, model.parameters())?;
    parameter_groups::require_adapters(&config.model.lora, model.parameters())?;
    Ok(model)
}

/// Returns the configuration of the same model without LoRA adapters. Checkpoints with adapters can
/// be loaded into such a model, because loading adds the adapters to the matrices.
#[must_use]
pub fn without_adapters(config: &RunConfig) -> RunConfig {
    let mut config = config.clone();
    if std::mem::take(&mut config.model.lora).is_on() {
        // The patterns in `freeze` could match only adapters, which the model no longer has. They
        // are also not needed, because they have an effect only in training.
        config.training.freeze.clear();
    }
    config
}
