//! Formats events of a training as lines of text or of JSON.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use candle_core::Device;
use taper_run::RunEvent;
use taper_run::checks::computation::describe_operations;
use taper_run::checks::device;
use taper_trainer::{Scores, StopReason};

use super::ending::describe_end;
use crate::bars::clock;
use crate::text::quoted;

pub(super) fn begun(folder: &Path, step: u64, device: &Device, dtype: &str) -> [String; 2] {
    let operations = format!("operations: {}", describe_operations(device, dtype));
    let (folder, device) = (folder.display(), device::describe(device));
    [operations, format!("training in {folder} from step {step}, on {device}")]
}

pub(super) fn interrupted(folder: &Path, step: u64) -> String {
    let folder = quoted(folder);
    format!("interrupted at step {step}; continue with: taper resume {folder}")
}

pub(super) fn ended(reason: StopReason, step: u64, seconds: f64) -> String {
    let time = clock(Duration::from_secs_f64(seconds.max(0.0)));
    format!("{} at step {step} after {time}", describe_end(reason))
}

/// Formats an event as a line of JSON; `None` for an event that is not reported as JSON.
pub(super) fn json_line(event: &RunEvent<'_>) -> Result<Option<String>> {
    let record = match event {
        RunEvent::Files { corpus, files } => serde_json::json!({
            "event": "files", "corpus": corpus, "files": files,
        }),
        RunEvent::WarmStart { started, replaced, .. } => serde_json::json!({
            "event": "warm_start", "replaced": replaced, "weights": started,
        }),
        RunEvent::WordVectors(taken) => {
            serde_json::json!({ "event": "embeddings", "tables": taken })
        }
        RunEvent::Prepared { data, .. } => {
            let mut record = serde_json::to_value(data)?;
            record["event"] = "data".into();
            record
        }
        RunEvent::Training(event) => return Ok(Some(serde_json::to_string(event)?)),
        RunEvent::Tested { checkpoint, step, results, .. } => serde_json::json!({
            "event": "test", "checkpoint": checkpoint, "step": step, "results": results,
        }),
        _ => return Ok(None),
    };
    Ok(Some(record.to_string()))
}

/// Returns the label of the loss. `nll` is the mean negative log-likelihood of a token, and the
/// perplexity that is printed next to the loss is `exp(nll)`. With label smoothing, the loss
/// differs from `nll`, so the label says that it is smoothed.
pub(super) fn loss_name(loss: f64, nll: f64) -> &'static str {
    if (loss - nll).abs() <= 1e-9 * loss.abs() { "loss" } else { "smoothed loss" }
}

/// Formats scores on one line; text scores come last, because they change most slowly.
pub(super) fn describe(scores: &Scores) -> String {
    let mut parts = Vec::new();
    let loss = match (scores.get("loss"), scores.get("perplexity")) {
        (Some(loss), Some(perplexity)) => loss_name(loss, perplexity.ln()),
        _ => "loss",
    };
    for (name, label, decimals, factor, unit) in [
        ("loss", loss, 4, 1.0, ""),
        ("perplexity", "ppl", 2, 1.0, ""),
        ("accuracy", "accuracy", 1, 100.0, "%"),
        ("bleu", "BLEU", 2, 1.0, ""),
        ("chrf", "chrF2", 2, 1.0, ""),
    ] {
        if let Some(value) = scores.get(name) {
            parts.push(format!("{label} {:.decimals$}{unit}", value * factor));
        }
    }
    parts.join("  ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_that_is_no_logarithm_of_the_perplexity_says_so() {
        assert_eq!(loss_name(1.25, 1.25), "loss");
        assert_eq!(loss_name(1.25, 1.0), "smoothed loss");
    }
}
