//! Settings of translation.

use std::path::PathBuf;
use std::sync::Arc;

use taper_decoding::{AlignedAttention, DecodingConfig};
use taper_metrics::Tokenizer;

use super::{OverlongRule, Terms};
use crate::config::RunConfig;

/// Settings for translating lines.
#[derive(Debug, Clone)]
pub struct TranslationSettings {
    /// Settings of the search.
    pub decoding: DecodingConfig,
    /// Treatment of a line with too many tokens.
    pub overlong: OverlongRule,
    /// Largest number of tokens of a line. If the model has fewer positions, their number is the
    /// limit.
    pub max_source_tokens: usize,
    /// Runs or checkpoint folders. Their models translate together with the model of the run, as an
    /// ensemble. They must have the same tokenizer as the run.
    pub ensemble: Vec<PathBuf>,
    /// Choice of the attention weights that serve as an alignment.
    pub aligned_by: AlignedAttention,
    /// Terms with prescribed translations.
    pub terms: Option<Arc<Terms>>,
    /// Source language and target language.
    pub languages: [String; 2],
    /// Tokenizer of BLEU, for reranking of candidates.
    pub tokenizer: Tokenizer,
    /// Results that are computed in addition to the text of the best translation.
    pub detail: TranslationDetail,
}

impl TranslationSettings {
    /// Settings for a model with the configuration `config`. Settings of the search are those in
    /// the section `[decoding]` of the configuration. Lines with more tokens than in training are
    /// translated in parts.
    #[must_use]
    pub fn from_config(config: &RunConfig) -> Self {
        Self {
            decoding: config.decoding.clone(),
            overlong: OverlongRule::Split,
            max_source_tokens: config.data.cleaning.max_tokens,
            ensemble: Vec::new(),
            aligned_by: aligned_by(config),
            terms: None,
            languages: [&config.data.source_language, &config.data.target_language]
                .map(Clone::clone),
            tokenizer: config.evaluation.tokenize,
            detail: TranslationDetail::default(),
        }
    }
}

/// Choice of the attention weights that serve as an alignment in a run with the configuration
/// `config`: the weights of the attention head that was trained with alignments or, if there is no
/// such head, the default.
#[must_use]
fn aligned_by(config: &RunConfig) -> AlignedAttention {
    let guided = config.training.guided_alignment.guidance();
    guided.map_or_else(AlignedAttention::default, |guided| AlignedAttention {
        layer: guided.layer,
        head: Some(guided.head),
    })
}

/// Results for a line in addition to the text of its best translation. Other results are not
/// computed, or not returned.
#[derive(Debug, Clone, Copy, Default)]
pub struct TranslationDetail {
    /// Whether to return all `n_best` translations, and not only the best one.
    pub all: bool,
    /// Whether to align each translation with the line.
    pub alignments: bool,
    /// Whether an alignment also has tokens and attention weights, and not only pairs of aligned
    /// tokens.
    pub weights: bool,
}

/// Copy of `config` for a search of which only the best translation is needed. A beam search then
/// returns only its first result. With sampling, all samples are returned, because the best of them
/// is chosen later.
pub fn for_the_best(config: &DecodingConfig) -> DecodingConfig {
    let n_best = if config.sampling.is_active() { config.n_best } else { 1 };
    DecodingConfig { n_best, ..config.clone() }
}
