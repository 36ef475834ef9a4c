//! Labels for texts and images, by a trained classifier.

use std::path::PathBuf;

use anyhow::Result;
use candle_core::Tensor;
use serde::Serialize;
use taper_data::{Pixels, Row, rows_of};
use taper_model::{ImageClassifier, Model, Sequences, TextClassifier};

use crate::LoadedRun;
use crate::evaluation::highest;

/// Tokens that pass through the model together, about.
const TOKENS: usize = 4096;

/// The label of a text or an image.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Prediction {
    /// The likeliest label.
    pub label: String,
    /// Its probability.
    pub probability: f64,
    /// The probability of each label, in the order of the recipe's.
    pub probabilities: Vec<f64>,
}

/// Labels texts, or pairs of texts with a tab between them, and tells `done` of the number so far. Of
/// a text that is longer than `data.labelled.max_tokens` the beginning is read.
///
/// # Errors
/// For an empty text or a line that is no pair, by its number from 1, and when the model fails.
pub fn predict(
    run: &LoadedRun<TextClassifier>,
    texts: &[String],
    mut done: impl FnMut(usize),
) -> Result<Vec<Prediction>> {
    let settings = &run.config.data.labelled;
    let rows = rows_of(run.tokenizers.target(), texts, settings)?;
    let mut found = Vec::with_capacity(texts.len());
    while found.len() < rows.len() {
        let mut tokens = 0;
        let fits = |row: &&Row| {
            let before = tokens;
            tokens += row.ids.len();
            before == 0 || tokens <= TOKENS
        };
        let batch: Vec<&Row> = rows[found.len()..].iter().take_while(fits).collect();
        let text = Sequences::pack(&batch.iter().map(|row| &row.ids).collect::<Vec<_>>());
        let segments = batch.iter().flat_map(|row| row.segments()).collect();
        let segments = Sequences { ids: segments, lengths: text.lengths.clone() };
        for probabilities in probabilities(&run.model, &segments, &text)? {
            found.push(Prediction::of(probabilities, &settings.labels));
        }
        done(found.len());
    }
    Ok(found)
}

impl Prediction {
    fn of(probabilities: Vec<f64>, labels: &[String]) -> Self {
        let best = highest(&probabilities);
        Self {
            label: labels.get(best).cloned().unwrap_or_default(),
            probability: probabilities[best],
            probabilities,
        }
    }
}

/// Labels PNG and JPEG files, and tells `done` of the number so far. They are scaled to the size of
/// the images that the model was trained on, and taken in their channels.
///
/// # Errors
/// For a file that is no such picture, and when the model fails.
pub fn predict_images(
    run: &LoadedRun<ImageClassifier>,
    files: &[PathBuf],
    mut done: impl FnMut(usize),
) -> Result<Vec<Prediction>> {
    let settings = &run.config.data.images;
    let mut found = Vec::with_capacity(files.len());
    for files in files.chunks((TOKENS / settings.tokens()).max(1)) {
        let read = |path: &PathBuf| Pixels::of_file(path, settings);
        let images = files.iter().map(read).collect::<Result<Vec<_>, _>>()?;
        found.extend(predict_pixels(run, images)?);
        done(found.len());
    }
    Ok(found)
}

/// Labels images, which pass through the model together.
///
/// # Errors
/// When one is of another shape than the model's, and when the model fails.
pub fn predict_pixels(
    run: &LoadedRun<ImageClassifier>,
    images: Vec<Pixels>,
) -> Result<Vec<Prediction>> {
    let values = |image: Pixels| image.0.into_iter().map(u32::from).collect();
    let images: Vec<Vec<u32>> = images.into_iter().map(values).collect();
    let found = image_probabilities(&run.model, &Sequences::pack(&images))?;
    let labels = &run.config.data.images.labels;
    Ok(found.into_iter().map(|of| Prediction::of(of, labels)).collect())
}

/// The probabilities of the classes of each text.
///
/// # Errors
/// As [`TextClassifier::logits`].
pub(crate) fn probabilities(
    model: &TextClassifier,
    segments: &Sequences,
    text: &Sequences,
) -> Result<Vec<Vec<f64>>> {
    normalised(&taper_ops::threads::in_pool(model.device(), || model.logits(segments, text))?)
}

/// The probabilities of the classes of each image.
///
/// # Errors
/// As [`ImageClassifier::logits`].
pub(crate) fn image_probabilities(
    model: &ImageClassifier,
    images: &Sequences,
) -> Result<Vec<Vec<f64>>> {
    normalised(&taper_ops::threads::in_pool(model.device(), || model.logits(images))?)
}

/// `exp(x) / Σ exp(x)` of each row.
fn normalised(logits: &Tensor) -> Result<Vec<Vec<f64>>> {
    let of_row = |row: Vec<f32>| {
        let highest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let powers: Vec<f64> = row.iter().map(|&x| f64::from(x - highest).exp()).collect();
        let sum: f64 = powers.iter().sum();
        powers.into_iter().map(|power| power / sum).collect()
    };
    Ok(logits.to_vec2::<f32>()?.into_iter().map(of_row).collect())
}
