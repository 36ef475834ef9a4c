//! Settings of reranking, the choice among several translations of a text. A search returns the
//! candidates. The choice itself is made by the caller of the search, who has the candidates as
//! texts.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Choice among several candidates, which are sampled or found by a beam of the same width.
///
/// A candidate's total is the weighted sum of three parts: its score by the model, which is a
/// log-probability divided by the length penalty; its utility, which is its mean similarity to all
/// candidates, from 0 to 1; and mean log-probabilities of a token by other models. Utility alone is
/// minimum Bayes risk decoding (Kumar and Byrne 2004; Eikema and Aziz 2022, "Sampling-Based
/// Approximations to Minimum Bayes Risk Decoding for Neural Machine Translation"); the models
/// together are a noisy channel (Yee et al. 2019, "Simple and Effective Noisy Channel Modeling for
/// Neural Machine Translation").
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RerankingConfig {
    /// Number of candidates for each text, at least 2; 0: the best translation of the search is
    /// taken, without a choice.
    #[schemars(range(max = 65_536))]
    #[schemars(extend("x-names" = "mbr num_samples"))]
    pub candidates: usize,
    /// Measure of the similarity of two candidates.
    #[schemars(extend("x-idle" = ["no-reranking"]))]
    pub utility: Utility,
    /// Weight of the candidate's utility, which is its mean similarity to all candidates.
    #[schemars(range(min = 0.0))]
    #[schemars(extend("x-idle" = ["no-reranking"]))]
    pub utility_weight: f64,
    /// Weight of the candidate's score by the model that translates.
    #[schemars(range(min = 0.0))]
    #[schemars(extend("x-idle" = ["no-reranking"]))]
    pub model_weight: f64,
    /// Run that translates in the opposite direction; empty: candidates are not translated back.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-idle" = ["no-reranking"]))]
    pub reverse: Option<PathBuf>,
    /// Weight of the log-probability that the run `reverse` gives to the source as a translation of
    /// the candidate, divided by the number of its tokens.
    #[schemars(range(min = 0.0))]
    #[schemars(extend("x-idle" = ["no-reranking", "no-reverse"]))]
    pub reverse_weight: f64,
    /// Run of a language model of the target language.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-idle" = ["no-reranking"]))]
    pub language_model: Option<PathBuf>,
    /// Weight of the log-probability that the run `language_model` gives to the candidate, divided
    /// by the number of its tokens.
    #[schemars(range(min = 0.0))]
    #[schemars(extend("x-idle" = ["no-reranking", "no-language-model"]))]
    pub language_model_weight: f64,
    /// Comparison of candidates with fewer others.
    #[serde(skip_serializing_if = "PruningConfig::is_default")]
    #[schemars(extend("x-idle" = ["no-reranking", "no-utility"]))]
    pub pruning: PruningConfig,
}

/// Comparison of candidates with fewer others. Candidates are compared with a few samples first. A
/// candidate is dropped if it is unlikely to be among the best `n_best`, and only the others are
/// compared with more samples (Cheng and Vlachos 2023, "Faster Minimum Bayes Risk Decoding with
/// Confidence-based Pruning"). The candidates must be samples, and the utility one of pairs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PruningConfig {
    /// Confidence with which a candidate is dropped, such as 0.99: the share of resamples in which
    /// it must be worse than the best candidate so far. 1: none is dropped. 0: no pruning.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub confidence: f64,
    /// Number of samples with which candidates are compared at first. It is doubled until
    /// candidates are compared with all samples.
    #[schemars(range(min = 1, max = 65_536))]
    #[schemars(extend("x-names" = "sampling_scheduler"), extend("x-idle" = ["no-pruning"]))]
    pub references: usize,
    /// Number of resamples (draws of as many samples, with replacement) by which the confidence is
    /// estimated. The random numbers follow from `decoding.sampling.seed` and the line.
    #[schemars(range(min = 1, max = 65_536))]
    #[schemars(extend("x-names" = "num_bootstrap_samples"), extend("x-idle" = ["no-pruning"]))]
    pub resamples: usize,
}

impl Default for PruningConfig {
    fn default() -> Self {
        Self { confidence: 0.0, references: 8, resamples: 500 }
    }
}

impl PruningConfig {
    /// Whether candidates can be dropped before they are compared with all others.
    pub fn is_active(&self) -> bool {
        self.confidence > 0.0
    }

    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Measure of the similarity of two translations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Utility {
    /// chrF of each pair of candidates.
    #[default]
    Chrf,
    /// chrF with the mean counts of all candidates: nearly the same choice, in a time that is
    /// linear instead of quadratic in the number of candidates (Vamvas and Sennrich 2024,
    /// "Linear-time Minimum Bayes Risk Decoding with Reference Aggregation").
    AggregatedChrf,
    /// BLEU of each pair of candidates, with the tokenizer of `evaluation.tokenize`.
    Bleu,
}

impl Default for RerankingConfig {
    fn default() -> Self {
        Self {
            candidates: 0,
            utility: Utility::Chrf,
            utility_weight: 1.0,
            model_weight: 0.0,
            reverse: None,
            reverse_weight: 1.0,
            language_model: None,
            language_model_weight: 1.0,
            pruning: PruningConfig::default(),
        }
    }
}

/// A number for each criterion of the choice among candidates: either a candidate's scores, or the
/// weights of the scores.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Criteria {
    /// Mean similarity of the candidate to all candidates.
    pub utility: f64,
    /// Score of the candidate by the model that translates.
    pub model: f64,
    /// Mean log-probability of the source's tokens, given the candidate, by the model that
    /// translates from the target language to the source language.
    pub reverse: f64,
    /// Mean log-probability of the candidate's tokens, by the language model.
    pub language_model: f64,
}

impl Criteria {
    /// Returns the sum of these scores, each multiplied by its weight.
    #[must_use]
    pub fn total(&self, weights: &Self) -> f64 {
        let of_candidate = weights.utility * self.utility + weights.model * self.model;
        let of_others =
            weights.reverse * self.reverse + weights.language_model * self.language_model;
        of_candidate + of_others
    }
}

impl From<[f64; 4]> for Criteria {
    fn from([utility, model, reverse, language_model]: [f64; 4]) -> Self {
        Self { utility, model, reverse, language_model }
    }
}

impl From<Criteria> for [f64; 4] {
    fn from(criteria: Criteria) -> Self {
        let Criteria { utility, model, reverse, language_model } = criteria;
        [utility, model, reverse, language_model]
    }
}

impl RerankingConfig {
    /// Whether there is reranking: a result is chosen among several candidates.
    pub fn is_active(&self) -> bool {
        self.candidates > 0
    }

    /// Returns the runs (folders of trained models) that score candidates, in addition to the model
    /// that translates; none if there is no choice.
    pub fn models(&self) -> impl Iterator<Item = &Path> {
        let models = [&self.reverse, &self.language_model].into_iter().flatten();
        models.filter(move |_| self.is_active()).map(PathBuf::as_path)
    }

    /// Returns the weights of the criteria; 0 for criteria whose model is not configured.
    pub fn weights(&self) -> Criteria {
        let of_model = |is_named: bool, weight: f64| if is_named { weight } else { 0.0 };
        Criteria {
            utility: self.utility_weight,
            model: self.model_weight,
            reverse: of_model(self.reverse.is_some(), self.reverse_weight),
            language_model: of_model(self.language_model.is_some(), self.language_model_weight),
        }
    }

    /// Sets the weights of the criteria, except those whose model is not configured.
    pub fn set_weights(&mut self, weights: &Criteria) {
        self.utility_weight = weights.utility;
        self.model_weight = weights.model;
        if self.reverse.is_some() {
            self.reverse_weight = weights.reverse;
        }
        if self.language_model.is_some() {
            self.language_model_weight = weights.language_model;
        }
    }

    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}
