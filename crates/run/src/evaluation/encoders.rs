//! What encoders are measured to be: masked language models, and classifiers of texts and images.

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

/// Bins of confidence by which calibration is measured.
const BINS: usize = 10;

/// A text of which a masked language model has predicted hidden tokens, the same each time.
#[derive(Debug, Clone, Serialize)]
pub struct MaskedTestSet {
    /// The split's name.
    pub split: String,
    /// Tokens that were asked.
    pub tokens: u64,
    /// Their mean negative log-likelihood, in nats.
    pub loss: f64,
    /// `exp(loss)`.
    pub perplexity: f64,
    /// The share of them that the model found likeliest.
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

    /// The lines that a reader wants.
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

/// How many examples a classifier has labelled.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Labelled {
    /// So many texts.
    Texts(usize),
    /// So many images.
    Images(usize),
}

/// Examples whose label was given with a confidence within a tenth.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CalibrationBin {
    /// How many they are.
    pub examples: u64,
    /// Their mean confidence.
    pub confidence: f64,
    /// The share of their labels that are right.
    pub accuracy: f64,
}

/// Texts or images that a classifier has given labels.
#[derive(Debug, Clone, Serialize)]
pub struct ClassifiedTestSet {
    /// The split's name.
    pub split: String,
    /// How many, and of what.
    #[serde(flatten)]
    pub examples: Labelled,
    /// The share of labels that are right.
    pub accuracy: f64,
    /// Mean negative log-likelihood of the right label, in nats.
    pub loss: f64,
    /// The mean distance between confidence and accuracy, over ten bins of confidence (Guo et al.
    /// 2017, "On Calibration of Modern Neural Networks", section 2).
    pub calibration_error: f64,
    /// Labels by how confident they were given.
    pub calibration: Vec<CalibrationBin>,
    /// The labels.
    pub labels: Vec<String>,
    /// For each right label, how often each label was given.
    pub confusion: Vec<Vec<u64>>,
}

impl ClassifiedTestSet {
    /// Has `model` label the texts.
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

    /// Has `model` label the images, of which the `right` classes are known.
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

    /// Counts what was `found` for each example against what is `right`.
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
            // A probability too small for a number is not one that cannot be.
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

    /// The lines that a reader wants.
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

/// What `probabilities` gives of every example of a split, in order.
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

/// The place of the highest value; of equal ones the first.
pub(crate) fn highest(values: &[f64]) -> usize {
    let mut best = 0;
    for (index, value) in values.iter().enumerate() {
        if *value > values[best] {
            best = index;
        }
    }
    best
}
