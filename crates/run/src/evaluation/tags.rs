//! Scores of taggers, which label each word of a sentence.

use anyhow::Result;
use taper_data::tagged_words;
use taper_metrics::EntityReport;
use taper_model::TokenTagger;

use super::{Split, TaggedTestSet};
use crate::prediction::tags_of;

impl TaggedTestSet {
    /// Tags the words of a split with `model`, and scores the tags. Words at the end of a sentence
    /// that is too long for the model count as tagged `O`.
    ///
    /// # Errors
    /// When the split cannot be read, or the model cannot be run on it.
    pub(crate) fn evaluate(split: Split<'_>, model: &TokenTagger) -> Result<Self> {
        let sentences = tagged_words(&split.config.data, &split.corpora())?;
        let (words, right): (Vec<Vec<String>>, Vec<Vec<String>>) = sentences.into_iter().unzip();
        let labels = &split.config.data.labelled;
        let given = tags_of(model, split.tokenizer(), labels, &words, |_| {})?;
        let (mut report, mut count, mut correct) = (EntityReport::default(), 0_u64, 0_u64);
        for (right, given) in right.iter().zip(&given) {
            report.add(right, given);
            count += right.len() as u64;
            correct +=
                right.iter().zip(given).filter(|(right, given)| right == given).count() as u64;
        }
        Ok(Self {
            split: split.name.to_owned(),
            sentences: words.len(),
            words: count,
            accuracy: correct as f64 / count.max(1) as f64,
            entities: report.micro(),
            macro_f1: report.macro_f1(),
            types: report.types(),
        })
    }
}
