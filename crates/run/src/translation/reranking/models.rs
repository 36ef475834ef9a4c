//! Models that score candidates for a translation, in addition to the translating model: a model of
//! the opposite direction (reverse model), and a language model of the target language.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use taper_decoding::RerankingConfig;
use taper_model::LanguageModel;

use super::super::{Side, score_pairs};
use crate::generation::TextScorer;
use crate::{LoadSettings, LoadedRun};

/// Models with which candidates are scored.
#[derive(Debug, Default)]
pub(super) struct RerankingModels {
    reverse: Option<LoadedRun>,
    language_model: Option<LoadedRun<LanguageModel>>,
}

impl RerankingModels {
    /// Loads the models that `settings` name, if reranking is requested. `languages`: source
    /// language and target language of the translations.
    ///
    /// # Errors
    /// If a model cannot be loaded, or the reverse model translates between other languages.
    pub(super) fn load(settings: &RerankingConfig, languages: [&str; 2]) -> Result<Arc<Self>> {
        if !settings.is_active() {
            return Ok(Arc::default());
        }
        let reverse = settings.reverse.as_deref().map(|path| reverse_of(path, languages));
        let language_model = settings.language_model.as_deref().map(|path| {
            let loaded = LoadedRun::open(path, &LoadSettings::default());
            loaded.with_context(|| format!("decoding.reranking.language_model {}", path.display()))
        });
        let (reverse, language_model) = (reverse.transpose()?, language_model.transpose()?);
        Ok(Arc::new(Self { reverse, language_model }))
    }

    pub(super) fn are_any(&self) -> bool {
        self.reverse.is_some() || self.language_model.is_some()
    }

    /// For each candidate, the log-probability per token of its source as a translation of the
    /// candidate; `None` if there is no reverse model.
    pub(super) fn back(
        &self,
        sources: &[String],
        candidates: &[String],
    ) -> Result<Option<Vec<f64>>> {
        let Some(run) = &self.reverse else { return Ok(None) };
        let place = |side, index: usize| match side {
            Side::Source => format!("candidate {}", index + 1),
            Side::Target => format!("the source of candidate {}", index + 1),
        };
        let scores = score_pairs(run, candidates, sources, None, place, |_| {})?;
        let by_token =
            |score: taper_decoding::ForcedScore| score.log_probability / score.length.max(1) as f64;
        Ok(Some(or_worst(scores.into_iter().map(|score| score.ok().map(by_token)))))
    }

    /// For each candidate, the log-probability per token of its text by the language model; `None`
    /// if there is no language model.
    pub(super) fn fluency(&self, candidates: &[String]) -> Result<Option<Vec<f64>>> {
        let Some(run) = &self.language_model else { return Ok(None) };
        let scores = TextScorer::new(run)?.texts(candidates, |_| {})?;
        let by_token = |score: crate::generation::TextScore| {
            score.log_probability / score.token_log_probabilities.len().max(1) as f64
        };
        Ok(Some(or_worst(scores.into_iter().map(|score| score.ok().map(by_token)))))
    }
}

/// Loads the run (folder of a trained model) at `path`, which must translate from the second of
/// `languages` to the first. In a run of several directions, this direction is chosen.
fn reverse_of(path: &Path, [source, target]: [&str; 2]) -> Result<LoadedRun> {
    let key = || format!("decoding.reranking.reverse {}", path.display());
    let settings = LoadSettings { every_direction: true, ..LoadSettings::default() };
    let mut run: LoadedRun = LoadedRun::open(path, &settings).with_context(key)?;
    if run.config.data.is_multilingual() {
        let back = run.config.data.choose_direction(Some(target), Some(source));
        let back = back.with_context(key)?;
        (run.config, run.tokenizers) = run.in_direction(&back).with_context(key)?;
    }
    let data = &run.config.data;
    let [from, to] = [data.source_language.as_str(), data.target_language.as_str()];
    let differs = |one: &str, other: &str| !one.is_empty() && !other.is_empty() && one != other;
    ensure!(
        !differs(from, target) && !differs(to, source),
        "{}: it translates {from} to {to}, and not {target} back to {source}: name a run of \
             the other direction",
        key()
    );
    Ok(run)
}

/// Replaces missing scores (of texts that a model cannot read) by the lowest of the scores.
fn or_worst(scores: impl Iterator<Item = Option<f64>>) -> Vec<f64> {
    let scores: Vec<Option<f64>> = scores.collect();
    let worst = scores.iter().flatten().copied().fold(0.0, f64::min);
    scores.into_iter().map(|score| score.unwrap_or(worst)).collect()
}
