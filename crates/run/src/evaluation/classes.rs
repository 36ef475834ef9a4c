//! Scores of classifiers of texts and images.

use anyhow::{Context, Result};
use taper_data::{Dataset, ImageDataset, LabelOf};
use taper_model::{ImageClassifier, Sequences, TextClassifier};

use super::{CalibrationBin, ClassifiedTestSet, Labelled, Split};
use crate::numbers::highest;
use crate::prediction::{image_probabilities, probabilities};

/// Number of bins into which predictions are divided by confidence, for the calibration error.
const BINS: usize = 10;

impl ClassifiedTestSet {
    /// Labels the texts of a split with `model`, and scores the labels.
    ///
    /// # Errors
    /// When the texts cannot be read, or the model cannot be run on them.
    pub(crate) fn of_texts(split: Split<'_>, model: &TextClassifier) -> Result<Self> {
        let texts = split.labelled(LabelOf::Text)?;
        let (labels, right) = (&split.config.data.labelled.labels, texts.classes());
        let predicted =
            of_all(split, texts, |[segments, text]| probabilities(model, segments, text))?;
        let examples = Labelled::Texts(right.len());
        Ok(Self::of_probabilities(split.name, examples, (labels, &right), &predicted))
    }

    /// Labels the images of a split with `model`, and scores the labels.
    ///
    /// # Errors
    /// When the images cannot be read, or the model cannot be run on them.
    pub(crate) fn of_images(split: Split<'_>, model: &ImageClassifier) -> Result<Self> {
        let images = ImageDataset::read(&split.config.data, &split.corpora())?;
        let (labels, right) = (&split.config.data.images.labels, images.classes());
        let predicted = of_all(split, images, |[images]| image_probabilities(model, images))?;
        let examples = Labelled::Images(right.len());
        Ok(Self::of_probabilities(split.name, examples, (labels, &right), &predicted))
    }

    /// Scores the probabilities of all labels in `predicted`, for each example, against `right`,
    /// the indices of the correct labels.
    fn of_probabilities(
        split: &str,
        examples: Labelled,
        (labels, right): (&[String], &[u32]),
        predicted: &[Vec<f64>],
    ) -> Self {
        let mut confusion = vec![vec![0; labels.len()]; labels.len()];
        let (mut loss, mut correct) = (0.0, 0_u64);
        let mut bins = [(0.0, 0.0, 0_u64); BINS];
        for (probabilities, &class) in predicted.iter().zip(right) {
            let class = class as usize;
            let given = highest(probabilities);
            confusion[class][given] += 1;
            // A probability of 0 may be a small one that underflowed, so it does not make the loss
            // infinite.
            loss -= probabilities[class].max(f64::MIN_POSITIVE).ln();
            correct += u64::from(given == class);
            let confidence = probabilities[given];
            let bin = &mut bins[((confidence * BINS as f64) as usize).min(BINS - 1)];
            bin.0 += confidence;
            bin.1 += f64::from(u8::from(given == class));
            bin.2 += 1;
        }
        let count = right.len() as f64;
        Self {
            split: split.to_owned(),
            examples,
            accuracy: correct as f64 / count,
            loss: loss / count,
            calibration_error: bins.iter().map(|(sum, right, _)| (sum - right).abs()).sum::<f64>()
                / count,
            calibration: bins
                .iter()
                .filter(|(.., examples)| *examples > 0)
                .map(|&(sum, right, examples)| CalibrationBin {
                    examples,
                    confidence: sum / examples as f64,
                    accuracy: right / examples as f64,
                })
                .collect(),
            labels: labels.to_vec(),
            confusion,
        }
    }
}

/// Probabilities of all labels for each example of a split, in order. `probabilities` computes them
/// for a batch.
fn of_all<const STREAMS: usize>(
    split: Split<'_>,
    dataset: impl Dataset + 'static,
    probabilities: impl Fn(&[Sequences; STREAMS]) -> Result<Vec<Vec<f64>>>,
) -> Result<Vec<Vec<f64>>> {
    let mut all_probabilities = Vec::new();
    for batch in split.in_order(dataset) {
        let batch = batch.map_err(anyhow::Error::from_boxed)?;
        let streams = batch.streams.as_slice().try_into().context("a batch of other streams")?;
        all_probabilities.extend(probabilities(streams)?);
    }
    Ok(all_probabilities)
}
