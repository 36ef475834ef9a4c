//! Test sets, after training and by `evaluate`.

use std::fs;

use anyhow::{Context, Result};
use serde::Serialize;
use taper_data::TokenizerPair;
use taper_metrics::Tokenizer;
use taper_model::TranslationModel;

use super::{
    AnsweredTestSet, CaptionedTestSet, ClassifiedTestSet, MaskedTestSet, MatchedTestSet,
    ReadTestSet, RegressedTestSet, TaggedTestSet, TextScores,
};
use crate::config::RunConfig;
use crate::event::{Notice, RunEvent, RunObserver};
use crate::finite::require_finite;
use crate::folder::RunFolder;
use crate::folder::files::write_atomically;
use crate::tasks::ParallelText;
use crate::translation::{BestTranslations, LineTranslator, TranslationSettings};

/// A test set as the model of a task was measured on it.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub enum TestSetResult {
    /// Of a translation model.
    Translated(Box<TranslatedTestSet>),
    /// Of a language model.
    Read(ReadTestSet),
    /// Of a masked language model.
    Masked(MaskedTestSet),
    /// Of a classifier.
    Classified(ClassifiedTestSet),
    /// Of a writer of captions.
    Captioned(Box<CaptionedTestSet>),
    /// Of a contrastive model.
    Matched(MatchedTestSet),
    /// Of a tagger.
    Tagged(TaggedTestSet),
    /// Of a reader of spans.
    Answered(AnsweredTestSet),
    /// Of a model that continues functions.
    Regressed(RegressedTestSet),
}

impl TestSetResult {
    /// The lines that a reader wants: the split, then one score a line.
    pub fn lines(&self) -> Vec<String> {
        match self {
            Self::Translated(result) => result.lines(),
            Self::Read(result) => result.lines(),
            Self::Masked(result) => result.lines(),
            Self::Classified(result) => result.lines(),
            Self::Captioned(result) => result.lines(),
            Self::Matched(result) => result.lines(),
            Self::Tagged(result) => result.lines(),
            Self::Answered(result) => result.lines(),
            Self::Regressed(result) => result.lines(),
        }
    }

    /// Refuses a result with a number that is not finite. What is counted of texts and labels always
    /// is.
    ///
    /// # Errors
    /// [`NotFinite`](crate::NotFinite).
    pub(super) fn require_finite(&self) -> Result<()> {
        match self {
            Self::Read(result) => require_finite("the loss", [result.loss]),
            Self::Masked(result) => require_finite("the loss", [result.loss]),
            Self::Classified(result) => require_finite("the loss", [result.loss]),
            Self::Matched(result) => require_finite("the loss", [result.loss]),
            Self::Regressed(result) => {
                require_finite("the predictions", result.after.iter().map(|at| at.of_answers.model))
            }
            Self::Translated(_) | Self::Captioned(_) | Self::Tagged(_) | Self::Answered(_) => {
                Ok(())
            }
        }
    }

    /// `count` examples spread over the set: source, translation, reference; or number of the
    /// image, caption, reference. Other tasks have none.
    pub fn sample_translations(&self, count: usize) -> Vec<String> {
        match self {
            Self::Translated(result) => result.sample_translations(count),
            Self::Captioned(result) => result.samples(count),
            Self::Read(_)
            | Self::Masked(_)
            | Self::Classified(_)
            | Self::Matched(_)
            | Self::Tagged(_)
            | Self::Answered(_)
            | Self::Regressed(_) => Vec::new(),
        }
    }
}

/// A test set, decoded and scored.
#[derive(Debug, Clone, Serialize)]
pub struct TranslatedTestSet {
    /// The split's name.
    pub split: String,
    /// How many sentences it has.
    pub sentences: usize,
    /// How many of them were translated in parts, as `translate` does, because they are longer
    /// than training saw.
    pub overlong: usize,
    /// How many translations end only because they had reached the maximum length.
    pub truncated: usize,
    /// The scores.
    #[serde(flatten)]
    pub scores: TextScores,
    /// Sources and references.
    #[serde(skip)]
    pub text: ParallelText,
    /// What the model made of the sources.
    #[serde(skip)]
    pub translations: Vec<String>,
}

impl TranslatedTestSet {
    /// Decodes and scores `split` with the recipe's decoding settings.
    ///
    /// # Errors
    /// When the split cannot be read or decoded.
    pub fn of(
        split: &str,
        config: &RunConfig,
        tokenizers: &TokenizerPair,
        model: &TranslationModel,
        observer: &mut dyn RunObserver,
    ) -> Result<Self> {
        let text = ParallelText::read(&config.data, config.data.split(split))?;
        let total = text.sources.len();
        let mut observed = observer.observe(&RunEvent::Decoding { split, done: 0, total });
        let translator = LineTranslator::of(model, tokenizers, &TranslationSettings::of(config));
        let decoded = translator.best(&text.sources, |done| {
            if observed.is_ok() {
                observed = observer.observe(&RunEvent::Decoding { split, done, total });
            }
        });
        observer.observe(&RunEvent::Decoded)?;
        let BestTranslations { texts: translations, overlong, truncated } = decoded?;
        observed?;
        if truncated > 0 {
            let (split, of) = (split.to_owned(), translations.len());
            observer.observe(&RunEvent::Notice(Notice::Truncated { split, truncated, of }))?;
        }
        let scores = TextScores::new(&translations, &text.references, &config.scoring())
            .with_context(|| format!("split `{split}`"))?;
        if scores.bleu.looks_tokenized && config.evaluation.tokenize != Tokenizer::None {
            let split = split.to_owned();
            observer.observe(&RunEvent::Notice(Notice::LooksTokenized(split)))?;
        }
        Ok(Self {
            split: split.to_owned(),
            sentences: translations.len(),
            overlong,
            truncated,
            scores,
            text,
            translations,
        })
    }

    fn lines(&self) -> Vec<String> {
        let overlong = match self.overlong {
            0 => String::new(),
            count => format!(", {count} of them longer than training saw and translated in parts"),
        };
        let mut lines = vec![format!("{} ({} sentences{overlong})", self.split, self.sentences)];
        lines.extend(self.scores.lines().map(|line| format!("  {line}")));
        lines
    }

    fn sample_translations(&self, count: usize) -> Vec<String> {
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

/// Writes scores.json and the translations, or captions, into the run.
///
/// # Errors
/// When the folder cannot be written to.
pub(crate) fn save(folder: &RunFolder, results: &[TestSetResult]) -> Result<()> {
    let json = serde_json::to_vec_pretty(results).context("scores are not JSON")?;
    write_atomically(&folder.scores(), &json)?;
    for result in results {
        let (split, written) = match result {
            TestSetResult::Translated(result) => (&result.split, &result.translations),
            TestSetResult::Captioned(result) => (&result.split, &result.captions),
            _ => continue,
        };
        let path = folder.translations(split);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)
                .with_context(|| format!("cannot make {}", parent.display()))?;
        }
        let mut text = written.join("\n");
        text.push('\n');
        write_atomically(&path, text.as_bytes())?;
    }
    Ok(())
}
