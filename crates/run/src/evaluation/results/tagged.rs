//! Scores of a tagger, which labels each word, on the sentences of a test set.

use std::collections::BTreeMap;

use serde::Serialize;
use taper_metrics::EntityScore;

/// Scores of a tagger on sentences.
#[derive(Debug, Clone, Serialize)]
pub struct TaggedTestSet {
    /// Name of the split.
    pub split: String,
    /// Number of sentences.
    pub sentences: usize,
    /// Number of words.
    pub words: u64,
    /// Share of words with the correct tag.
    pub accuracy: f64,
    /// Score of the entities of all types together, computed as in the Python package seqeval.
    #[serde(flatten)]
    pub entities: EntityScore,
    /// Mean of the F1 scores of all types of entities.
    pub macro_f1: f64,
    /// Score of the entities of each type.
    pub types: BTreeMap<String, EntityScore>,
}

impl TaggedTestSet {
    /// Lines of a report for people.
    pub(super) fn lines(&self) -> Vec<String> {
        let line = |name: &str, score: &EntityScore| {
            format!(
                "  {name:<12} F1 {:.2} %, precision {:.2} %, recall {:.2} %, {} there",
                100.0 * score.f1,
                100.0 * score.precision,
                100.0 * score.recall,
                score.support
            )
        };
        let mut lines = vec![
            format!("{} ({} sentences, {} words)", self.split, self.sentences, self.words),
            line("entities", &self.entities),
        ];
        lines.extend(self.types.iter().map(|(kind, score)| line(kind, score)));
        lines.push(format!("  words        {:.2} % of tags right", 100.0 * self.accuracy));
        lines
    }
}
