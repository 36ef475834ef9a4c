//! Translations of a test set, and their scores.

use serde::Serialize;

use super::super::{ParallelText, TextScores};

/// Translations of a test set by a model, and their scores.
#[derive(Debug, Clone, Serialize)]
pub struct TranslatedTestSet {
    /// Name of the split.
    pub split: String,
    /// Direction of translation, such as `en-de`; `None` for a model with a single direction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub direction: Option<String>,
    /// Number of sentences.
    pub sentences: usize,
    /// Number of sentences that were translated in parts, because they are longer than those in
    /// training.
    pub overlong: usize,
    /// Number of translations that ended only because they reached the maximum length.
    pub truncated: usize,
    /// Scores of the translations.
    #[serde(flatten)]
    pub scores: TextScores,
    /// Sources and reference translations.
    #[serde(skip)]
    pub text: ParallelText,
    /// Translations of the sources.
    #[serde(skip)]
    pub translations: Vec<String>,
    /// For each sentence, links between parts of the source and parts of the translation. A link
    /// has four indices of characters: the beginning and the end of the part in the source, and the
    /// beginning and the end of the part in the translation. The ends are exclusive. `None` if the
    /// model has no attention to the source, or links were not computed.
    #[serde(skip)]
    pub links: Option<Vec<Vec<[usize; 4]>>>,
}

impl TranslatedTestSet {
    /// Lines of a report for people.
    pub(super) fn lines(&self) -> Vec<String> {
        let overlong = match self.overlong {
            0 => String::new(),
            count => format!(", {count} of them longer than training saw and translated in parts"),
        };
        let mut lines = vec![format!("{} ({} sentences{overlong})", self.split, self.sentences)];
        lines.extend(self.scores.lines().map(|line| format!("  {line}")));
        lines
    }

    pub(super) fn sample_translations(&self, count: usize) -> Vec<String> {
        let total = self.translations.len();
        let count = count.min(total);
        let mut lines = Vec::new();
        for index in (0..count).map(|index| (2 * index + 1) * total / (2 * count)) {
            lines.push(format!("  source       {}", self.text.sources[index]));
            lines.push(format!("  translation  {}", self.translations[index]));
            lines.push(format!("  reference    {}", self.text.references[index]));
            lines.push(String::new());
        }
        lines.pop();
        lines
    }
}
