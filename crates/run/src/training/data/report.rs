//! Summary of the prepared data, and the file with this summary.

use std::path::Path;

use anyhow::{Context, Result};
use candle_core::Device;
use taper_data::Prepared;

use super::summary::DataSummary;
use crate::config::RunConfig;
use crate::folder::files::write_atomically;
use crate::tasks::{cost_of, vocabularies};

/// Writes the summary of `prepared` to `path`. It includes an estimate of the memory for training
/// on `device`.
///
/// # Errors
/// If the file cannot be written.
pub(crate) fn save(
    path: &Path,
    config: &RunConfig,
    prepared: &Prepared,
    device: &Device,
) -> Result<()> {
    let json = serde_json::to_vec_pretty(&DataSummary::new(config, prepared, device))
        .context("the data report is not JSON")?;
    write_atomically(path, &json)
}

impl<'a> DataSummary<'a> {
    /// Summary of `prepared`, with an estimate of the memory for training on `device`.
    pub(crate) fn new(config: &RunConfig, prepared: &'a Prepared, device: &Device) -> Self {
        let (source_vocabulary, target_vocabulary) = vocabularies(&prepared.tokenizers);
        Self {
            train: prepared.train.report(),
            validation: prepared.validation.as_ref().map(|set| set.report()),
            source_vocabulary,
            target_vocabulary,
            is_joint: prepared.tokenizers.is_joint(),
            largest_batch_bytes: largest_batch(config, prepared, device),
        }
    }
}

/// Estimated activation memory, in bytes, of the largest training batch on `device`.
fn largest_batch(config: &RunConfig, prepared: &Prepared, device: &Device) -> u64 {
    let batching = prepared.train.batching();
    let passes = config.training.objective().passes();
    let tokens = [batching.largest_source_tokens, batching.largest_target_tokens];
    let cost = cost_of(config, vocabularies(&prepared.tokenizers), device)
        .checkpointed(config.training.checkpoint_activations && device.is_cpu());
    // A model that reads only one sequence of tokens for each example, such as a language model,
    // has only target tokens, so the number of source tokens is skipped.
    let first = tokens.len() - cost.streams.len().min(tokens.len());
    let tokens = tokens.map(|tokens| passes * tokens);
    cost.activation_bytes(&tokens[first..], batching.longest_target)
}
