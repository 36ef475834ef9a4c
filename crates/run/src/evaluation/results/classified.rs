//! Scores of a classifier on a test set.

use serde::Serialize;

/// Number and kind of the examples that a classifier has labelled.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Labelled {
    /// Number of texts.
    Texts(usize),
    /// Number of images.
    Images(usize),
}

/// Statistics of the examples whose label was predicted with a confidence in one bin. Bins of
/// confidence are a tenth wide.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CalibrationBin {
    /// Number of examples in the bin.
    pub examples: u64,
    /// Mean confidence (probability of the predicted label) of these examples.
    pub confidence: f64,
    /// Share of these examples with a correctly predicted label.
    pub accuracy: f64,
}

/// Scores of a classifier on texts or images.
#[derive(Debug, Clone, Serialize)]
pub struct ClassifiedTestSet {
    /// Name of the split.
    pub split: String,
    /// Number and kind of the examples.
    #[serde(flatten)]
    pub examples: Labelled,
    /// Share of examples with a correctly predicted label.
    pub accuracy: f64,
    /// Mean negative log-likelihood of the correct labels, in nats.
    pub loss: f64,
    /// Expected calibration error: distance between mean confidence and accuracy in each of ten
    /// bins of confidence, averaged over the examples (Guo et al. 2017, "On Calibration of Modern
    /// Neural Networks", section 2).
    pub calibration_error: f64,
    /// Bins of confidence, without empty ones.
    pub calibration: Vec<CalibrationBin>,
    /// Names of the labels, in the order of rows and columns of `confusion`.
    pub labels: Vec<String>,
    /// Number of examples by correct label (rows) and predicted label (columns).
    pub confusion: Vec<Vec<u64>>,
}

impl ClassifiedTestSet {
    /// Lines of a report for people.
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
