//! The metrics BLEU, chrF and TER, as a function for Python.

use anyhow::{Result, anyhow, bail};
use pyo3::prelude::*;
use serde::Serialize;
use serde_json::Value;
use taper_metrics::{Bleu, Chrf, Ter, TerScore};

use crate::error::exception;

/// A TER score as a record.
#[derive(Serialize)]
struct TerRecord {
    score: f64,
    edits: u64,
    reference_length: f64,
    signature: String,
}

impl From<TerScore> for TerRecord {
    fn from(score: TerScore) -> Self {
        let TerScore { score, edits, reference_length, signature } = score;
        Self { score, edits, reference_length, signature }
    }
}

/// Computes the score of a corpus by the metric `name`, which is `bleu`, `chrf` or `ter`. The
/// options of the metric and the result are JSON. `references[k][i]` is the k-th reference of
/// hypothesis i.
#[pyfunction]
pub(crate) fn metric(
    py: Python<'_>,
    name: &str,
    options: &str,
    hypotheses: Vec<String>,
    references: Vec<Vec<String>>,
) -> PyResult<String> {
    py.allow_threads(|| scored(name, options, &hypotheses, &references))
        .map_err(|error| exception(&error))
}

fn scored(
    name: &str,
    options: &str,
    hypotheses: &[String],
    references: &[Vec<String>],
) -> Result<String> {
    let wrong = |error: serde_json::Error| anyhow!("{name}: {error}");
    let score: Value = match name {
        "bleu" => {
            let bleu: Bleu = serde_json::from_str(options).map_err(wrong)?;
            serde_json::to_value(bleu.corpus(hypotheses, references)?)?
        }
        "chrf" => {
            let chrf: Chrf = serde_json::from_str(options).map_err(wrong)?;
            serde_json::to_value(chrf.corpus(hypotheses, references)?)?
        }
        "ter" => {
            let ter: Ter = serde_json::from_str(options).map_err(wrong)?;
            serde_json::to_value(TerRecord::from(ter.corpus(hypotheses, references)?))?
        }
        _ => bail!("{name} is no metric: bleu, chrf and ter are"),
    };
    Ok(score.to_string())
}
