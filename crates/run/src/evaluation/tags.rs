//! Scores of taggers, by entities.

use std::collections::BTreeMap;

use anyhow::Result;
use serde::Serialize;
use taper_data::{TokenizerPair, tagged_words};
use taper_metrics::{EntityReport, EntityScore};
use taper_model::TokenTagger;

use crate::config::RunConfig;
use crate::prediction::tags_of;

/// Sentences tagged by a model.
#[derive(Debug, Clone, Serialize)]
pub struct TaggedTestSet {
    /// The split's name.
    pub split: String,
    /// Number of sentences.
    pub sentences: usize,
    /// Number of words.
    pub words: u64,
    /// Share of words with the correct tag.
    pub accuracy: f64,
    /// Score of all entities together, as seqeval counts them.
    #[serde(flatten)]
    pub entities: EntityScore,
    /// Mean F1 of the types.
    pub macro_f1: f64,
    /// Score of each type.
    pub types: BTreeMap<String, EntityScore>,
}

impl TaggedTestSet {
    /// Tags the words of a split with `model`. Words that do not fit into a row count as `O`.
    ///
    /// # Errors
    /// When the split cannot be read or computed.
    pub(crate) fn of(
        split: &str,
        config: &RunConfig,
        tokenizers: &TokenizerPair,
        model: &TokenTagger,
    ) -> Result<Self> {
        let sentences = tagged_words(&config.data, &config.data.split(split))?;
        let (words, right): (Vec<Vec<String>>, Vec<Vec<String>>) = sentences.into_iter().unzip();
        let labels = &config.data.labelled;
        let given = tags_of(model, tokenizers.target(), labels, &words, |_| {})?;
        let (mut report, mut count, mut correct) = (EntityReport::default(), 0_u64, 0_u64);
        for (right, given) in right.iter().zip(&given) {
            report.add(right, given);
            count += right.len() as u64;
            correct +=
                right.iter().zip(given).filter(|(right, given)| right == given).count() as u64;
        }
        Ok(Self {
            split: split.to_owned(),
            sentences: words.len(),
            words: count,
            accuracy: correct as f64 / count.max(1) as f64,
            entities: report.micro(),
            macro_f1: report.macro_f1(),
            types: report.types(),
        })
    }

    /// Lines of a report.
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
