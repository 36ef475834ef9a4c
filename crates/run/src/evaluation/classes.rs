//! Measurements of classifiers of texts and images.

use std::sync::Arc;

use anyhow::{Context, Result};
use taper_data::{Dataset, ImageDataset, LabelledDataset};
use taper_model::{ImageClassifier, Sequences, TextClassifier};

use super::{CalibrationBin, ClassifiedTestSet, Labelled};
use crate::config::RunConfig;
use crate::numbers::highest;
use crate::prediction::{image_probabilities, probabilities};
use crate::training::in_order;

/// Number of bins of confidence for the calibration error.
const BINS: usize = 10;

impl ClassifiedTestSet {
    /// Labels the texts with `model`.
    ///
    /// # Errors
    /// When the texts cannot be computed.
    pub(crate) fn of(
        split: &str,
        model: &TextClassifier,
        texts: Arc<LabelledDataset>,
        config: &RunConfig,
    ) -> Result<Self> {
        let (labels, right) = (&config.data.labelled.labels, texts.classes());
        let found = of_all(texts, config, |[segments, text]| probabilities(model, segments, text))?;
        Ok(Self::of_probabilities(split, Labelled::Texts(right.len()), (labels, &right), &found))
    }

    /// Labels the images, whose classes are `right`, with `model`.
    ///
    /// # Errors
    /// When the images cannot be read or computed.
    pub(crate) fn of_images(
        split: &str,
        model: &ImageClassifier,
        images: Arc<ImageDataset>,
        (labels, right): (&[String], &[u32]),
        config: &RunConfig,
    ) -> Result<Self> {
        let found = of_all(images, config, |[images]| image_probabilities(model, images))?;
        Ok(Self::of_probabilities(split, Labelled::Images(right.len()), (labels, right), &found))
    }

    /// Compares the probabilities `found` for each example with the correct labels `right`.
    fn of_probabilities(
        split: &str,
        examples: Labelled,
        (labels, right): (&[String], &[u32]),
        found: &[Vec<f64>],
    ) -> Self {
        let mut confusion = vec![vec![0; labels.len()]; labels.len()];
        let (mut loss, mut correct) = (0.0, 0_u64);
        let mut bins = [(0.0, 0.0, 0_u64); BINS];
        for (probabilities, &class) in found.iter().zip(right) {
            let class = class as usize;
            let given = highest(probabilities);
            confusion[class][given] += 1;
            // A probability too small for a number is not impossible.
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

/// Results of `probabilities` for every example of a split, in order.
fn of_all<const STREAMS: usize>(
    dataset: Arc<dyn Dataset>,
    config: &RunConfig,
    probabilities: impl Fn(&[Sequences; STREAMS]) -> Result<Vec<Vec<f64>>>,
) -> Result<Vec<Vec<f64>>> {
    let mut found = Vec::new();
    for batch in in_order(&dataset, &config.data.batching) {
        let batch = batch.map_err(anyhow::Error::from_boxed)?;
        let streams = batch.streams.as_slice().try_into().context("a batch of other streams")?;
        found.extend(probabilities(streams)?);
    }
    Ok(found)
}
