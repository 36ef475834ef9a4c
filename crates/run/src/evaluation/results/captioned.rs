//! Captioned images of a test set.

use serde::Serialize;

use super::super::TextScores;

/// Images captioned by a model.
#[derive(Debug, Clone, Serialize)]
pub struct CaptionedTestSet {
    /// The split's name.
    pub split: String,
    /// Number of images.
    pub images: usize,
    /// Share of captions that equal one of their image's captions exactly.
    pub exact_match: f64,
    /// Number of captions that ended only because they reached the maximum length.
    pub truncated: usize,
    /// Scores against all captions of an image.
    #[serde(flatten)]
    pub scores: TextScores,
    /// First caption of each image.
    #[serde(skip)]
    pub references: Vec<String>,
    /// Captions written by the model.
    #[serde(skip)]
    pub captions: Vec<String>,
}

impl CaptionedTestSet {
    /// Lines of a report.
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

    /// `count` examples spread over the set.
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
