//! Images and texts of a test set in one space.

use serde::Serialize;

/// Share of queries for which a match is ranked first, or among the first five candidates.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Recall {
    /// Number of candidates.
    pub among: usize,
    /// Share ranked first.
    pub at_1: f64,
    /// Share ranked among the first five.
    pub at_5: f64,
}

impl Recall {
    pub(crate) fn new(among: usize, [at_1, at_5]: [f64; 2]) -> Self {
        Self { among, at_1, at_5 }
    }

    fn line(&self, direction: &str) -> String {
        format!(
            "  {direction} recall at 1 {:.2} %, at 5 {:.2} %, among {}",
            100.0 * self.at_1,
            100.0 * self.at_5,
            self.among
        )
    }
}

/// Images and texts that a model has mapped into one space.
#[derive(Debug, Clone, Serialize)]
pub struct MatchedTestSet {
    /// The split's name.
    pub split: String,
    /// Number of images.
    pub images: usize,
    /// Mean contrastive loss in nats, in batches of the recipe's size.
    pub loss: f64,
    /// Share of images for which the correct label is the likeliest, judged by the texts of the
    /// labels; `None` for a table of captions, which has no labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zero_shot_accuracy: Option<f64>,
    /// Retrieval of one of an image's captions, among all captions of the split.
    pub image_to_text: Recall,
    /// Retrieval of an image by its caption, among all images of the split.
    pub text_to_image: Recall,
}

impl MatchedTestSet {
    /// Lines of a report.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines = vec![
            format!("{} ({} images)", self.split, self.images),
            format!("  loss         {:.4} nats within batches", self.loss),
        ];
        lines.extend(
            self.zero_shot_accuracy.map(|accuracy| {
                format!("  zero-shot    {:.2} % of labels right", 100.0 * accuracy)
            }),
        );
        lines.push(self.image_to_text.line("captions    "));
        lines.push(self.text_to_image.line("images      "));
        lines
    }
}
