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

/// Results of a model on a test set, by task.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub enum TestSetResult {
    /// Results of a translation model.
    Translated(Box<TranslatedTestSet>),
    /// Results of a language model.
    Read(ReadTestSet),
    /// Results of a masked language model.
    Masked(MaskedTestSet),
    /// Results of a classifier.
    Classified(ClassifiedTestSet),
    /// Results of a caption model.
    Captioned(Box<CaptionedTestSet>),
    /// Results of a contrastive model.
    Matched(MatchedTestSet),
    /// Results of a tagger.
    Tagged(TaggedTestSet),
    /// Results of a question-answering model.
    Answered(AnsweredTestSet),
    /// Results of a model that continues functions.
    Regressed(RegressedTestSet),
}

impl TestSetResult {
    /// Lines of a report: the split, then one score a line.
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

    /// Refuses a result with a number that is not finite. Counts of texts and labels always are
    /// finite.
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
    /// image, caption, reference. Empty for other tasks.
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
    /// Number of sentences.
    pub sentences: usize,
    /// Number of sentences longer than in training, which were translated in parts, like
    /// `translate` does.
    pub overlong: usize,
    /// Number of translations that ended only because they reached the maximum length.
    pub truncated: usize,
    /// The scores.
    #[serde(flatten)]
    pub scores: TextScores,
    /// Sources and references.
    #[serde(skip)]
    pub text: ParallelText,
    /// Translations of the sources.
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
