//! Measurements of encoders: masked language models, and classifiers of texts and images.

use std::sync::Arc;

use anyhow::{Context, Result};
use serde::Serialize;
use taper_data::{Dataset, ImageDataset, LabelledDataset};
use taper_model::{ImageClassifier, Sequences, TextClassifier};
use taper_trainer::TeacherForced;

use super::text::shown;
use crate::config::RunConfig;
use crate::prediction::{image_probabilities, probabilities};
use crate::training::in_order;

/// Number of bins of confidence for the calibration error.
const BINS: usize = 10;

/// Text on which a masked language model has predicted hidden tokens, the same each time.
#[derive(Debug, Clone, Serialize)]
pub struct MaskedTestSet {
    /// The split's name.
    pub split: String,
    /// Number of tokens that were predicted.
    pub tokens: u64,
    /// Mean negative log-likelihood of a token, in nats.
    pub loss: f64,
    /// Perplexity, `exp(loss)`.
    pub perplexity: f64,
    /// Share of tokens that the model found likeliest.
    pub accuracy: f64,
}

impl MaskedTestSet {
    pub(crate) fn of(split: &str, measured: &TeacherForced) -> Self {
        Self {
            split: split.to_owned(),
            tokens: measured.tokens,
            loss: measured.nll,
            perplexity: measured.perplexity,
            accuracy: measured.accuracy,
        }
    }

    /// Lines of a report.
    pub(super) fn lines(&self) -> Vec<String> {
        vec![
            format!("{} ({} hidden tokens)", self.split, self.tokens),
            format!(
                "  loss         {:.4} nats, perplexity {}; {:.2} % of tokens right",
                self.loss,
                shown(self.perplexity),
                100.0 * self.accuracy
            ),
        ]
    }
}

/// Number and kind of the examples that a classifier has labelled.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Labelled {
    /// Number of texts.
    Texts(usize),
    /// Number of images.
    Images(usize),
}

/// Examples whose label was given with a confidence in one interval of a tenth.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CalibrationBin {
    /// Number of examples.
    pub examples: u64,
    /// Mean confidence.
    pub confidence: f64,
    /// Share of correct labels.
    pub accuracy: f64,
}

/// Texts or images labelled by a classifier.
#[derive(Debug, Clone, Serialize)]
pub struct ClassifiedTestSet {
    /// The split's name.
    pub split: String,
    /// Number and kind of the examples.
    #[serde(flatten)]
    pub examples: Labelled,
    /// Share of correct labels.
    pub accuracy: f64,
    /// Mean negative log-likelihood of the correct label, in nats.
    pub loss: f64,
    /// Mean distance between confidence and accuracy, over ten bins of confidence (Guo et al. 2017,
    /// "On Calibration of Modern Neural Networks", section 2).
    pub calibration_error: f64,
    /// Examples by confidence.
    pub calibration: Vec<CalibrationBin>,
    /// Names of the labels.
    pub labels: Vec<String>,
    /// Count of each predicted label for each correct label.
    pub confusion: Vec<Vec<u64>>,
}

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

    /// Lines of a report.
    pub(super) fn lines(&self) -> Vec<String> {
        let examples = match self.examples {
            Labelled::Texts(count) => format!("{count} texts"),
            Labelled::Images(count) => format!("{count} images"),
        };
        let mut lines = vec![
            format!("{} ({examples})", self.split),
            format!(
                "  accuracy     {:.2} %; loss {:.4} nats; calibration error {:.3}",
                100.0 * self.accuracy,
                self.loss,
                self.calibration_error
            ),
        ];
        lines.extend(self.labels.iter().zip(&self.confusion).map(|(label, row)| {
            let given: Vec<String> = self
                .labels
                .iter()
                .zip(row)
                .map(|(label, count)| format!("{count} as {label}"))
                .collect();
            format!("  {label:<12} {}", given.join(", "))
        }));
        lines
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

/// Index of the highest value; among equal ones the first.
pub(crate) fn highest(values: &[f64]) -> usize {
    let mut best = 0;
    for (index, value) in values.iter().enumerate() {
        if *value > values[best] {
            best = index;
        }
    }
    best
}
