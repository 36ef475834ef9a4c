//! Choice among the translations that a search found.

use anyhow::Result;
use rayon::prelude::*;
use taper_decoding::{DecodingConfig, RerankingConfig, Utility};
use taper_metrics::{Bleu, Chrf, Tokenizer, WeightedReference, expected_scores};

use super::Translation;

/// Chooser among candidates, by the recipe's weights.
#[derive(Debug, Clone)]
pub(super) struct Reranker {
    settings: RerankingConfig,
    /// Tokenizer of BLEU.
    tokenizer: Tokenizer,
    /// Whether candidates are drawn, so that each stands for as much of the probability.
    are_drawn: bool,
}

impl Reranker {
    /// Chooser for the search `config`, with BLEU's `tokenizer`.
    pub(super) fn new(config: &DecodingConfig, tokenizer: Tokenizer) -> Self {
        let are_drawn = config.sampling.is_active();
        Self { settings: config.reranking.clone(), tokenizer, are_drawn }
    }

    /// Orders the candidates of each text, the best total first. Candidates with the same text have
    /// the same utility, and equals keep their order.
    ///
    /// # Errors
    /// When a candidate cannot be scored.
    pub(super) fn rank(&self, texts: &mut [Vec<Translation>]) -> Result<()> {
        if !self.settings.is_active() {
            return Ok(());
        }
        texts.par_iter_mut().filter(|candidates| !candidates.is_empty()).try_for_each(
            |candidates| {
                let utilities = self.utilities(candidates)?;
                let RerankingConfig { utility_weight, model_weight, .. } = self.settings;
                for (candidate, utility) in candidates.iter_mut().zip(utilities) {
                    let total = utility_weight * utility + model_weight * candidate.score;
                    candidate.total = Some(total);
                }
                let total = |one: &Translation| one.total.unwrap_or(f64::NEG_INFINITY);
                candidates.sort_by(|one, other| total(other).total_cmp(&total(one)));
                Ok(())
            },
        )
    }

    /// Utility of each candidate, from 0 to 1.
    fn utilities(&self, candidates: &[Translation]) -> Result<Vec<f64>> {
        let weights = self.weights(candidates);
        // Samples repeat each other: each text is compared once.
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

    /// Weight of each candidate: equal if they are drawn, else its probability over that of the
    /// likeliest, since a beam holds each once.
    fn weights(&self, candidates: &[Translation]) -> Vec<f64> {
        if self.are_drawn {
            return vec![1.0; candidates.len()];
        }
        let of = |one: &Translation| one.log_probability;
        let most = candidates.iter().map(of).fold(f64::NEG_INFINITY, f64::max);
        candidates.iter().map(|one| (of(one) - most).exp().max(f64::MIN_POSITIVE)).collect()
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
        let reranker = Reranker::new(config, Tokenizer::default());
        let mut texts = [candidates.iter().map(|&(text, score)| candidate(text, score)).collect()];
        reranker.rank(&mut texts).expect("scored");
        let [candidates]: [Vec<Translation>; 1] = texts;
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
        // 0.5 of the probability, where the others have 0.18, 0.11 and 0.07.
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
