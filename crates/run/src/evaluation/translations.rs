//! Translation of test sets and scoring of the translations, after training and by the command
//! `evaluate`.

use anyhow::{Context, Result};
use taper_data::Direction;
use taper_metrics::Tokenizer;
use taper_model::TranslationModel;

use super::{ParallelText, Split, TextScores, TranslatedTestSet};
use crate::event::{RunEvent, RunObserver, TextNotice};
use crate::translation::{
    BestTranslations, LineTranslator, TranslationDetail, TranslationSettings,
};

impl TranslatedTestSet {
    /// Translates the split with the settings in the section `[decoding]` of the configuration, and
    /// scores the translations.
    ///
    /// # Errors
    /// When the split cannot be read, or the model cannot be run on it.
    pub fn evaluate(
        split: Split<'_>,
        model: &TranslationModel,
        observer: &mut dyn RunObserver,
    ) -> Result<Self> {
        let Split { config, tokenizers, shortlist, .. } = split;
        let text = ParallelText::read(&config.data, split.corpora())?;
        let mut settings = TranslationSettings::from_config(config);
        // A report shows which words of source and translation belong together. They are found in
        // one pass over all tokens of a translation at once, without another search.
        let is_aligned = split.is_kept && settings.aligned_by.check(model).is_ok();
        settings.detail =
            TranslationDetail { alignments: is_aligned, weights: is_aligned, ..settings.detail };
        let translator = LineTranslator::from_model(model, tokenizers, shortlist, &settings)?;
        let BestTranslations { texts: translations, overlong, truncated, links } =
            split.observed(text.sources.len(), observer, |progress, control| {
                let translator = translator.under(&settings, control);
                translator.best_linked(&text.sources, &config.data.source_prefix, progress)
            })?;
        let split = split.name;
        let of_data = || Direction::new(&config.data.source_language, &config.data.target_language);
        let direction = config.data.is_multilingual().then(|| of_data().to_string());
        if truncated > 0 {
            let (split, of) = (split.to_owned(), translations.len());
            observer.observe(&RunEvent::notice(TextNotice::Truncated { split, truncated, of }))?;
        }
        let scores = TextScores::new(&translations, &text.references, &config.scoring())
            .with_context(|| format!("split `{split}`"))?;
        if scores.bleu.looks_tokenized && config.evaluation.tokenize != Tokenizer::None {
            let split = split.to_owned();
            observer.observe(&RunEvent::notice(TextNotice::LooksTokenized(split)))?;
        }
        Ok(Self {
            split: split.to_owned(),
            direction,
            sentences: translations.len(),
            overlong,
            truncated,
            scores,
            text,
            translations,
            links,
        })
    }
}
