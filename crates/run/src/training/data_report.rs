//! The data report: printed before training and kept as `data.json`.

use std::path::Path;

use anyhow::{Context, Result};
use candle_core::Device;
use serde::Serialize;
use taper_data::{DataReport, Prepared, SideReport};
use taper_model::Transformer;

use crate::checks::cost::bytes;
use crate::config::RunConfig;
use crate::folder::files::write_atomically;

/// What the data of a run is: `data.json`.
#[derive(Debug, Serialize)]
pub struct DataSummary<'a> {
    /// The training split.
    pub train: &'a DataReport,
    /// The validation split.
    pub validation: Option<&'a DataReport>,
    /// Tokens of the source vocabulary.
    pub source_vocabulary: usize,
    /// Tokens of the target vocabulary.
    pub target_vocabulary: usize,
    /// Whether the two are one.
    #[serde(skip)]
    pub is_joint: bool,
    /// Estimated activation memory of the largest training batch.
    pub largest_batch_bytes: u64,
}

/// Writes `data.json`, for training on `device`.
///
/// # Errors
/// When the folder cannot be written to.
pub(crate) fn save(
    path: &Path,
    config: &RunConfig,
    prepared: &Prepared,
    device: &Device,
) -> Result<()> {
    let json = serde_json::to_vec_pretty(&DataSummary::of(config, prepared, device))
        .context("the data report is not JSON")?;
    write_atomically(path, &json)
}

impl<'a> DataSummary<'a> {
    /// The summary of `prepared`, for training on `device`.
    pub(crate) fn of(config: &RunConfig, prepared: &'a Prepared, device: &Device) -> Self {
        Self {
            train: prepared.train.report(),
            validation: prepared.validation.as_ref().map(|set| set.report()),
            source_vocabulary: prepared.tokenizers.source().vocabulary_size(),
            target_vocabulary: prepared.tokenizers.target().vocabulary_size(),
            is_joint: prepared.tokenizers.is_joint(),
            largest_batch_bytes: largest_batch(config, prepared, device),
        }
    }

    /// The report for a reader.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for report in [Some(self.train), self.validation].into_iter().flatten() {
            lines.push(format!(
                "{}: {} pairs read, {} kept, {} dropped{}",
                report.split,
                report.pairs_read,
                report.pairs_kept,
                report.dropped.total(),
                if report.dropped.total() > 0 {
                    format!(" ({})", report.dropped)
                } else {
                    String::new()
                }
            ));
            for side in [&report.source, &report.target] {
                lines.push(side_line(side));
            }
        }
        let report = self.train;
        for side in [&report.source, &report.target] {
            let bins: Vec<String> = side
                .histogram
                .iter()
                .filter(|bin| bin.pairs > 0)
                .map(|bin| format!("{}-{}: {}", bin.from, bin.to, bin.pairs))
                .collect();
            lines.push(format!("  lengths {}: {}", side.language, bins.join(", ")));
        }
        let batching = &report.batching;
        let epochs = match batching.bidirectional_epochs {
            0 => format!("{} an epoch", batching.batches),
            epochs => format!(
                "{} an epoch in the first {epochs}, which go in both directions, then {}",
                batching.bidirectional_batches, batching.batches
            ),
        };
        lines.push(format!(
        "batches: {epochs}, at most {} source and {} target tokens, {} sentences; packed, so none is padding (rectangles would cost {:.1} %); the largest needs at most about {}",
        batching.largest_source_tokens,
        batching.largest_target_tokens,
        batching.largest_sentences,
        100.0 * batching.padding_cost,
        bytes(self.largest_batch_bytes)
    ));
        lines.push(if self.is_joint {
            format!("vocabulary: {} tokens, joint", self.source_vocabulary)
        } else {
            format!(
                "vocabulary: {} source and {} target tokens",
                self.source_vocabulary, self.target_vocabulary
            )
        });
        lines
    }
}

fn side_line(side: &SideReport) -> String {
    format!(
        "  {}: {} tokens, {:.1} a sentence, longest {}, unknown {:.3} %",
        side.language,
        side.tokens,
        side.mean_length,
        side.longest,
        100.0 * side.unknown_rate
    )
}

/// Estimated activation memory of the largest training batch on `device`.
fn largest_batch(config: &RunConfig, prepared: &Prepared, device: &Device) -> u64 {
    let batching = &prepared.train.report().batching;
    let passes = config.training.objective().passes();
    let (source, target) = (prepared.tokenizers.source(), prepared.tokenizers.target());
    let vocabularies = (source.vocabulary_size(), target.vocabulary_size());
    Transformer::cost_of(&config.model, vocabularies.0, vocabularies.1, device).activation_bytes(&[
        passes * batching.largest_source_tokens,
        passes * batching.largest_target_tokens,
    ])
}
