//! Captions that a model has written for a test set, and their scores.

use serde::Serialize;

use super::super::TextScores;

/// Captions that a model has written for images, and their scores.
#[derive(Debug, Clone, Serialize)]
pub struct CaptionedTestSet {
    /// Name of the split.
    pub split: String,
    /// Number of images.
    pub images: usize,
    /// Share of the model's captions that are identical to a reference caption of the same image.
    pub exact_match: f64,
    /// Number of captions that ended only because they reached the maximum length.
    pub truncated: usize,
    /// Scores of the model's captions against all reference captions of each image.
    #[serde(flatten)]
    pub scores: TextScores,
    /// First reference caption of each image.
    #[serde(skip)]
    pub references: Vec<String>,
    /// Captions written by the model.
    #[serde(skip)]
    pub captions: Vec<String>,
}

impl CaptionedTestSet {
    /// Lines of a report for people.
    pub(super) fn lines(&self) -> Vec<String> {
        let truncated = match self.truncated {
            0 => String::new(),
            count => format!("; {count} end at the maximum length"),
        };
        let mut lines = vec![
            format!("{} ({} images)", self.split, self.images),
            format!("  exact match  {:.2} %{truncated}", 100.0 * self.exact_match),
        ];
        lines.extend(self.scores.lines().map(|line| format!("  {line}")));
        lines
    }

    /// Lines with `count` examples, evenly spread over the set.
    pub(super) fn samples(&self, count: usize) -> Vec<String> {
        let total = self.captions.len();
        let count = count.min(total);
        let mut lines = Vec::new();
        for index in (0..count).map(|index| (2 * index + 1) * total / (2 * count)) {
            lines.push(format!("  image        {}", index + 1));
            lines.push(format!("  caption      {}", self.captions[index]));
            lines.push(format!("  reference    {}", self.references[index]));
            lines.push(String::new());
        }
        lines.pop();
        lines
    }
}
