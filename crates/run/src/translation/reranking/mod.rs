//! Reranking: choice among the translations that a search has found (its candidates).

mod models;

use std::sync::Arc;

use anyhow::Result;
use rayon::prelude::*;
use taper_decoding::{Criteria, DecodingConfig, RerankingConfig, Utility};
use taper_metrics::{Bleu, Chrf, Tokenizer, WeightedReference, expected_scores};

use self::models::RerankingModels;
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
    models: Arc<RerankingModels>,
}

impl Reranker {
    /// Reranker for a search with the settings `config`. `tokenizer`: tokenizer of BLEU.
    /// `languages`: source language and target language.
    ///
    /// # Errors
    /// If a model that `config` names cannot be loaded.
    pub(super) fn new(
        config: &DecodingConfig,
        tokenizer: Tokenizer,
        languages: [&str; 2],
    ) -> Result<Self> {
        let models = RerankingModels::load(&config.reranking, languages)?;
        Ok(Self { models, ..Self::alone(config, tokenizer) })
    }

    /// Reranker that uses no models except the one that translates.
    fn alone(config: &DecodingConfig, tokenizer: Tokenizer) -> Self {
        let are_drawn = config.sampling.is_active();
        Self { settings: config.reranking.clone(), tokenizer, are_drawn, models: Arc::default() }
    }

    /// Reranker for other settings of the search, with the same models.
    pub(super) fn under(&self, config: &DecodingConfig, tokenizer: Tokenizer) -> Self {
        Self { models: Arc::clone(&self.models), ..Self::alone(config, tokenizer) }
    }

    /// Sorts the candidates of each text by the weighted sums (totals) of their scores, the best
    /// first. Candidates with equal totals keep their order.
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
        let scores = self.scores(&weights, texts, translations)?;
        for (candidates, scores) in translations.iter_mut().zip(scores) {
            for (candidate, scores) in candidates.iter_mut().zip(scores) {
                candidate.total = Some(scores.total(&weights));
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
        self.scores(&Criteria::from([1.0; 4]), texts, translations)
    }

    /// Scores of the candidates of each text by all criteria. The score by a criterion with weight
    /// 0 or without a model is 0.
    fn scores(
        &self,
        weights: &Criteria,
        texts: &[TextPart],
        translations: &[Vec<Translation>],
    ) -> Result<Vec<Vec<Criteria>>> {
        let utilities: Vec<Vec<f64>> = translations
            .par_iter()
            .map(|candidates| match weights.utility == 0.0 || candidates.is_empty() {
                true => Ok(vec![0.0; candidates.len()]),
                false => self.utilities(candidates),
            })
            .collect::<Result<_>>()?;
        let [back, fluency] = self.by_models(weights, texts, translations)?;
        let mut of_models = back.into_iter().zip(fluency);
        let scores = translations.iter().zip(utilities).map(|(candidates, utilities)| {
            candidates
                .iter()
                .zip(utilities)
                .zip(of_models.by_ref())
                .map(|((one, utility), (reverse, language_model))| Criteria {
                    utility,
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

    /// Utility of each candidate, from 0 to 1: the weighted mean of its scores against all
    /// candidates as references. Candidates with the same text have the same utility.
    fn utilities(&self, candidates: &[Translation]) -> Result<Vec<f64>> {
        let weights = self.weights(candidates);
        // Several samples can have the same text, so each distinct text is scored once.
        let mut references: Vec<WeightedReference<'_>> = Vec::new();
        let mut places = Vec::with_capacity(candidates.len());
        for (candidate, weight) in candidates.iter().zip(weights) {
            let text = candidate.text.as_str();
            let place = references.iter().position(|one| one.text == text);
            places.push(place.unwrap_or(references.len()));
            match place {
                Some(place) => references[place].weight += weight,
                None => references.push(WeightedReference { text, weight }),
            }
        }
        let texts: Vec<&str> = references.iter().map(|one| one.text).collect();
        let utilities = match self.settings.utility {
            Utility::Chrf => expected_scores(&Chrf::default(), &texts, &references)?,
            Utility::AggregatedChrf => {
                Chrf::default().aggregated_expected_scores(&texts, &references)?
            }
            Utility::Bleu => {
                let tokenizer = self.tokenizer;
                let bleu = Bleu { tokenizer, effective_order: true, ..Bleu::default() };
                expected_scores(&bleu, &texts, &references)?
            }
        };
        Ok(places.into_iter().map(|place| utilities[place] / 100.0).collect())
    }

    /// Weight of each candidate as a reference. Samples have equal weights, because likely texts
    /// occur more often among them. The candidates of a beam are all different, so the weight of
    /// each is its probability relative to that of the likeliest one.
    fn weights(&self, candidates: &[Translation]) -> Vec<f64> {
        if self.are_drawn {
            return vec![1.0; candidates.len()];
        }
        let score_of = |one: &Translation| one.log_probability;
        let most = candidates.iter().map(score_of).fold(f64::NEG_INFINITY, f64::max);
        candidates.iter().map(|one| (score_of(one) - most).exp().max(f64::MIN_POSITIVE)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(text: &str, log_probability: f64) -> Translation {
        Translation {
            text: text.to_owned(),
            score: log_probability,
            log_probability,
            length: 1,
            truncated: false,
            total: None,
            tokens: Vec::new(),
            token_log_probabilities: Vec::new(),
            alignment: None,
        }
    }

    fn ranked(config: &DecodingConfig, candidates: &[(&str, f64)]) -> Vec<String> {
        let reranker = Reranker::alone(config, Tokenizer::default());
        let text = TextPart::default();
        let mut ranked_lists =
            [candidates.iter().map(|&(text, score)| candidate(text, score)).collect()];
        reranker.rank(&[text], &mut ranked_lists).expect("scored");
        let [candidates]: [Vec<Translation>; 1] = ranked_lists;
        candidates.into_iter().map(|one| one.text).collect()
    }

    fn settings(reranking: RerankingConfig, temperature: f64) -> DecodingConfig {
        let mut config = DecodingConfig { reranking, ..DecodingConfig::default() };
        config.sampling.temperature = temperature;
        config
    }

    const CANDIDATES: [(&str, f64); 4] = [
        ("wholly different words", -1.0),
        ("the cat sat on the mat", -2.0),
        ("the cat sat on a mat", -2.5),
        ("the cat sits on the mat", -3.0),
    ];

    #[test]
    fn the_candidate_with_most_in_common_is_chosen() {
        for utility in [Utility::Chrf, Utility::AggregatedChrf, Utility::Bleu] {
            let reranking = RerankingConfig { candidates: 4, utility, ..Default::default() };
            let ranked = ranked(&settings(reranking, 1.0), &CANDIDATES);
            assert_eq!(ranked[0], CANDIDATES[1].0, "{utility:?}");
            assert_eq!(ranked[3], CANDIDATES[0].0, "{utility:?}");
        }
    }

    #[test]
    fn probabilities_of_a_beam_are_weights() {
        // The first text has 0.58 of the probability, and the other texts have 0.21, 0.13 and 0.08.
        let reranking = RerankingConfig { candidates: 4, ..Default::default() };
        assert_eq!(ranked(&settings(reranking, 0.0), &CANDIDATES)[0], CANDIDATES[0].0);
    }

    #[test]
    fn repeated_samples_count_as_often() {
        let reranking = RerankingConfig { candidates: 7, ..Default::default() };
        let mut candidates = CANDIDATES.to_vec();
        candidates.extend([CANDIDATES[0]; 6]);
        assert_eq!(ranked(&settings(reranking, 1.0), &candidates)[..7], [CANDIDATES[0].0; 7]);
    }

    #[test]
    fn the_model_has_its_weight() {
        let reranking = RerankingConfig {
            candidates: 4,
            utility_weight: 0.0,
            model_weight: 1.0,
            ..Default::default()
        };
        let ranked = ranked(&settings(reranking.clone(), 1.0), &CANDIDATES);
        assert_eq!(ranked, CANDIDATES.map(|(text, _)| text));
        let none = RerankingConfig { candidates: 0, ..reranking };
        let order: Vec<(&str, f64)> = CANDIDATES.iter().rev().copied().collect();
        assert_eq!(self::ranked(&settings(none, 1.0), &order)[0], CANDIDATES[3].0);
    }
}
