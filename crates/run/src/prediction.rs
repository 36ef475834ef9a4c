//! Labels for texts, by a trained classifier.

use anyhow::{Result, bail};
use serde::Serialize;
use taper_data::rows_of;
use taper_model::{Model, Sequences, TextClassifier};

use crate::LoadedRun;
use crate::evaluation::highest;

/// Tokens that pass through the model together, about.
const TOKENS: usize = 4096;

/// The label of a text.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Prediction {
    /// The likeliest label.
    pub label: String,
    /// Its probability.
    pub probability: f64,
    /// The probability of each label, in the order of the recipe's.
    pub probabilities: Vec<f64>,
}

/// Labels texts, and tells `done` of the number so far. Of a text that is longer than
/// `data.labelled.max_tokens` the beginning is read.
///
/// # Errors
/// For an empty text, by its number from 1, and when the model fails.
pub fn predict(
    run: &LoadedRun<TextClassifier>,
    texts: &[String],
    mut done: impl FnMut(usize),
) -> Result<Vec<Prediction>> {
    if let Some(index) = texts.iter().position(|text| text.trim().is_empty()) {
        bail!("line {}: is empty: there is nothing to label", index + 1);
    }
    let settings = &run.config.data.labelled;
    let rows = rows_of(run.tokenizers.target(), texts, settings.max_tokens)?;
    let mut found = Vec::with_capacity(texts.len());
    while found.len() < rows.len() {
        let mut tokens = 0;
        let fits = |row: &&Vec<u32>| {
            let before = tokens;
            tokens += row.len();
            before == 0 || tokens <= TOKENS
        };
        let batch: Vec<&Vec<u32>> = rows[found.len()..].iter().take_while(fits).collect();
        for probabilities in probabilities(&run.model, &Sequences::pack(&batch))? {
            let best = highest(&probabilities);
            found.push(Prediction {
                label: settings.labels.get(best).cloned().unwrap_or_default(),
                probability: probabilities[best],
                probabilities,
            });
        }
        done(found.len());
    }
    Ok(found)
}

/// The probabilities of the classes of each text.
///
/// # Errors
/// As [`TextClassifier::logits`].
pub(crate) fn probabilities(model: &TextClassifier, text: &Sequences) -> Result<Vec<Vec<f64>>> {
    let logits = taper_ops::threads::in_pool(model.device(), || model.logits(text))?;
    let of_row = |row: Vec<f32>| {
        let highest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let powers: Vec<f64> = row.iter().map(|&x| f64::from(x - highest).exp()).collect();
        let sum: f64 = powers.iter().sum();
        powers.into_iter().map(|power| power / sum).collect()
    };
    Ok(logits.to_vec2::<f32>()?.into_iter().map(of_row).collect())
}
