//! Reranking: choice among the translations that a search has found (its candidates).

mod models;
mod pruning;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::Result;
use rayon::prelude::*;
use taper_decoding::{Criteria, DecodingConfig, RerankingConfig, Utility};
use taper_metrics::{Bleu, Chrf, Metric, Tokenizer, WeightedReference, expected_scores};

use self::models::RerankingModels;
use self::pruning::Pruner;
use super::Translation;
use super::parts::TextPart;

/// Reranker of candidates by a weighted sum of their scores by several criteria. The weights are
/// those in the configuration.
#[derive(Debug, Clone)]
pub(super) struct Reranker {
    settings: RerankingConfig,
    /// Tokenizer of BLEU.
    tokenizer: Tokenizer,
    /// Whether candidates are random samples, which all have the same weight.
    are_drawn: bool,
    /// Pruner of candidates; `None` if every candidate is compared with all.
    pruner: Option<Pruner>,
    models: Arc<RerankingModels>,
}

impl Reranker {
    /// Reranker for a search with the settings `config`, which has to find the best `wanted`
    /// translations. `tokenizer`: tokenizer of BLEU. `languages`: source language and target
    /// language.
    ///
    /// # Errors
    /// If a model that `config` names cannot be loaded.
    pub(super) fn new(
        config: &DecodingConfig,
        wanted: usize,
        tokenizer: Tokenizer,
        languages: [&str; 2],
    ) -> Result<Self> {
        let models = RerankingModels::load(&config.reranking, languages)?;
        Ok(Self { models, ..Self::alone(config, wanted, tokenizer) })
    }

    /// Reranker that uses no models except the one that translates.
    fn alone(config: &DecodingConfig, wanted: usize, tokenizer: Tokenizer) -> Self {
        let (settings, are_drawn) = (config.reranking.clone(), config.sampling.is_active());
        let pruner = Pruner::new(settings.pruning, config.sampling.seed, wanted);
        let pruner = settings.pruning.is_active().then_some(pruner);
        Self { settings, tokenizer, are_drawn, pruner, models: Arc::default() }
    }

    /// Reranker for other settings of the search, with the same models.
    pub(super) fn under(
        &self,
        config: &DecodingConfig,
        wanted: usize,
        tokenizer: Tokenizer,
    ) -> Self {
        Self { models: Arc::clone(&self.models), ..Self::alone(config, wanted, tokenizer) }
    }

    /// Sorts the candidates of each text by the weighted sums (totals) of their scores, the best
    /// first. Candidates with equal totals keep their order. Candidates that are dropped before
    /// they are compared with all others come last and have no total; the best `wanted` are not
    /// dropped.
    ///
    /// # Errors
    /// If a candidate cannot be scored.
    pub(super) fn rank(
        &self,
        texts: &[TextPart],
        translations: &mut [Vec<Translation>],
    ) -> Result<()> {
        if !self.settings.is_active() {
            return Ok(());
        }
        let weights = self.settings.weights();
        let others = self.scores_by_models(&weights, texts, translations)?;
        let utilities: Vec<Vec<Option<f64>>> = (texts, &*translations, &others)
            .into_par_iter()
            .map(|(text, candidates, others)| match weights.utility == 0.0 {
                true => Ok(vec![Some(0.0); candidates.len()]),
                false => self.utilities_to_choose(text, candidates, others, &weights),
            })
            .collect::<Result<_>>()?;
        for ((candidates, others), utilities) in translations.iter_mut().zip(others).zip(utilities)
        {
            for ((candidate, others), utility) in candidates.iter_mut().zip(others).zip(utilities) {
                let total = |utility| Criteria { utility, ..others }.total(&weights);
                candidate.total = utility.map(total);
            }
            let total = |one: &Translation| one.total.unwrap_or(f64::NEG_INFINITY);
            candidates.sort_by(|one, other| total(other).total_cmp(&total(one)));
        }
        Ok(())
    }

    /// Scores of the candidates of each text by all criteria, also those with weight 0. The score
    /// by a criterion whose model is missing is 0.
    ///
    /// # Errors
    /// If a candidate cannot be scored.
    pub(super) fn all_scores(
        &self,
        texts: &[TextPart],
        translations: &[Vec<Translation>],
    ) -> Result<Vec<Vec<Criteria>>> {
        let mut scores = self.scores_by_models(&Criteria::from([1.0; 4]), texts, translations)?;
        let utilities: Vec<Vec<f64>> = (texts, translations)
            .into_par_iter()
            .map(|(text, candidates)| self.utilities(text, candidates))
            .collect::<Result<_>>()?;
        for (scores, utilities) in scores.iter_mut().zip(utilities) {
            scores.iter_mut().zip(utilities).for_each(|(scores, utility)| scores.utility = utility);
        }
        Ok(scores)
    }

    /// Scores of the candidates of each text by models, with a utility of 0. The score by a model
    /// with weight 0, or that is missing, is 0.
    fn scores_by_models(
        &self,
        weights: &Criteria,
        texts: &[TextPart],
        translations: &[Vec<Translation>],
    ) -> Result<Vec<Vec<Criteria>>> {
        let [back, fluency] = self.by_models(weights, texts, translations)?;
        let mut of_models = back.into_iter().zip(fluency);
        let scores = translations.iter().map(|candidates| {
            candidates
                .iter()
                .zip(of_models.by_ref())
                .map(|(one, (reverse, language_model))| Criteria {
                    utility: 0.0,
                    model: one.score,
                    reverse,
                    language_model,
                })
                .collect()
        });
        Ok(scores.collect())
    }

    /// Scores of all candidates by the reverse model (of the opposite direction of translation),
    /// and scores of all candidates by the language model. Each list has the candidates of the
    /// first text, then those of the second text, and so on.
    fn by_models(
        &self,
        weights: &Criteria,
        texts: &[TextPart],
        translations: &[Vec<Translation>],
    ) -> Result<[Vec<f64>; 2]> {
        let none = || vec![0.0; translations.iter().map(Vec::len).sum()];
        let candidates: Vec<String> = match self.models.are_any() {
            true => translations.iter().flatten().map(|one| one.text.clone()).collect(),
            false => return Ok([none(), none()]),
        };
        let counted = texts.iter().zip(translations);
        let sources: Vec<String> = counted
            .flat_map(|(text, translations)| vec![text.text.clone(); translations.len()])
            .collect();
        let back = match weights.reverse == 0.0 {
            true => None,
            false => self.models.back(&sources, &candidates)?,
        };
        let fluency = match weights.language_model == 0.0 {
            true => None,
            false => self.models.fluency(&candidates)?,
        };
        Ok([back.unwrap_or_else(none), fluency.unwrap_or_else(none)])
    }

    /// Utility of each candidate of `text`, from 0 to 1: the weighted mean of its scores against
    /// all candidates as references. Candidates with the same text have the same utility.
    fn utilities(&self, text: &TextPart, candidates: &[Translation]) -> Result<Vec<f64>> {
        if candidates.is_empty() {
            return Ok(Vec::new());
        }
        let (texts, places) = distinct(candidates);
        let mut references: Vec<WeightedReference<'_>> =
            texts.iter().map(|&text| WeightedReference { text, weight: 0.0 }).collect();
        for (&place, weight) in places.iter().zip(self.weights(text, candidates)) {
            references[place].weight += weight;
        }
        let utilities = match self.settings.utility {
            Utility::AggregatedChrf => {
                Chrf::default().aggregated_expected_scores(&texts, &references)?
            }
            Utility::Chrf | Utility::Bleu => expected_scores(&*self.metric(), &texts, &references)?,
        };
        Ok(places.into_iter().map(|place| utilities[place] / 100.0).collect())
    }

    /// Utility of each candidate of `text`, as by [`Self::utilities`]; `None` for candidates that
    /// are dropped because they are unlikely to have one of the highest totals. `others`: scores of
    /// the candidates by the other criteria.
    fn utilities_to_choose(
        &self,
        text: &TextPart,
        candidates: &[Translation],
        others: &[Criteria],
        weights: &Criteria,
    ) -> Result<Vec<Option<f64>>> {
        let pruner = self.pruner.filter(|_| self.are_samples(text) && !candidates.is_empty());
        let Some(pruner) = pruner else {
            return Ok(self.utilities(text, candidates)?.into_iter().map(Some).collect());
        };
        let (texts, places) = distinct(candidates);
        // Two series of tokens with different scores can have the same text; the higher counts.
        let mut added = vec![f64::NEG_INFINITY; texts.len()];
        for (&place, others) in places.iter().zip(others) {
            let on_scale = others.total(weights) / weights.utility * 100.0;
            added[place] = added[place].max(on_scale);
        }
        let number = text.sentence().number;
        let metric = self.metric();
        let expected = pruner.expected_scores(&*metric, &texts, &places, &added, number)?;
        Ok(places.into_iter().map(|place| expected[place].map(|score| score / 100.0)).collect())
    }

    /// Metric that compares two candidates.
    fn metric(&self) -> Box<dyn Metric> {
        match self.settings.utility {
            Utility::Chrf | Utility::AggregatedChrf => Box::new(Chrf::default()),
            Utility::Bleu => Box::new(Bleu {
                tokenizer: self.tokenizer,
                effective_order: true,
                ..Bleu::default()
            }),
        }
    }

    /// Whether the candidates of `text` are random samples. A text with phrases is translated by a
    /// beam search in any case.
    fn are_samples(&self, text: &TextPart) -> bool {
        self.are_drawn && text.phrases.is_empty()
    }

    /// Weight of each candidate of `text` as a reference. Samples have equal weights, because
    /// likely texts occur more often among them. The candidates of a beam are all different, so the
    /// weight of each is its probability relative to that of the likeliest one.
    fn weights(&self, text: &TextPart, candidates: &[Translation]) -> Vec<f64> {
        if self.are_samples(text) {
            return vec![1.0; candidates.len()];
        }
        let score_of = |one: &Translation| one.log_probability;
        let most = candidates.iter().map(score_of).fold(f64::NEG_INFINITY, f64::max);
        candidates.iter().map(|one| (score_of(one) - most).exp().max(f64::MIN_POSITIVE)).collect()
    }
}

/// Distinct texts of `candidates`, in the order of their first occurrence, and the index of each
/// candidate's text. Several samples can have the same text, which then is scored once.
fn distinct(candidates: &[Translation]) -> (Vec<&str>, Vec<usize>) {
    let (mut texts, mut indices) = (Vec::new(), HashMap::new());
    let places = candidates.iter().map(|candidate| {
        *indices.entry(candidate.text.as_str()).or_insert_with_key(|text| {
            texts.push(*text);
            texts.len() - 1
        })
    });
    let places = places.collect();
    (texts, places)
}
