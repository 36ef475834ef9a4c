//! Scores of a language model's predictions on a text.

use anyhow::{Context, Result};
use taper_data::{TextBlocks, Tokenizer};
use taper_model::LanguageModel;
use taper_trainer::evaluate;

use super::ReadTestSet;
use crate::config::RunConfig;
use crate::training::packed;

impl ReadTestSet {
    /// Scores the predictions of `model` on the text of `split`. If `split` is `None`, the text is
    /// the part of the training text that `data.text.hold_out` reserves.
    ///
    /// # Errors
    /// When the text cannot be read or is empty, or the model cannot be run on it.
    pub fn evaluate(
        split: Option<&str>,
        config: &RunConfig,
        tokenizer: &Tokenizer,
        model: &LanguageModel,
    ) -> Result<Self> {
        let mut blocks = TextBlocks::open(&config.data, tokenizer, split)?;
        let batches = blocks.by_ref().map(|batch| Ok(packed(batch?)));
        let measured = evaluate(model, batches, 0.0);
        blocks.require_text()?;
        let measured = measured.with_context(|| format!("split {:?}", blocks.report().split))?;
        let report = blocks.report();
        let total = measured.nll * measured.tokens as f64;
        let per = |count: u64| total / count.max(1) as f64;
        Ok(Self {
            split: report.split.clone(),
            tokens: measured.tokens,
            unknown: report.unknown,
            loss: measured.nll,
            loss_per_character: per(report.characters),
            perplexity: measured.perplexity,
            perplexity_per_word: per(report.words).exp(),
            perplexity_per_character: per(report.characters).exp(),
            perplexity_per_byte: per(report.bytes).exp(),
            accuracy: measured.accuracy,
        })
    }
}
