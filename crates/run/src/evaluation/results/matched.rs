//! Scores of a model that maps the images and texts of a test set into one space.

use serde::Serialize;

/// Recall: shares of queries for which a correct candidate is ranked first, or among the first
/// five.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Recall {
    /// Number of candidates that are ranked.
    pub among: usize,
    /// Share of queries with a correct candidate at rank 1.
    pub at_1: f64,
    /// Share of queries with a correct candidate at ranks 1 to 5.
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

/// Scores of a model that maps images and texts into one space.
#[derive(Debug, Clone, Serialize)]
pub struct MatchedTestSet {
    /// Name of the split.
    pub split: String,
    /// Number of images.
    pub images: usize,
    /// Mean contrastive loss in nats, in batches of the same size as in training.
    pub loss: f64,
    /// Share of images that are closer to the text for their correct label than to the texts for
    /// all other labels; `None` if the images have captions instead of labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zero_shot_accuracy: Option<f64>,
    /// Retrieval of captions by images: the query is an image, and all captions of the split are
    /// candidates.
    pub image_to_text: Recall,
    /// Retrieval of images by captions: the query is a caption, and all images of the split are
    /// candidates.
    pub text_to_image: Recall,
}

impl MatchedTestSet {
    /// Lines of a report for people.
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
